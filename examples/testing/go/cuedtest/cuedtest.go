// Package cuedtest is for tests of what cued calls: a server whose clock moves when the test says so.
//
// Copy this folder into your module. It needs Go 1.19 and the standard library. The server is the program that
// CUED_BIN names, or cued on the PATH.
package cuedtest

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	start = "2030-01-01T00:00:00Z"
	// A shell that ends the server when its own input ends, so also when the process of the tests is killed.
	guard = `"$@" </dev/null & exec >&-; read -r _; kill $! 2>/dev/null; wait`
	shown = 20
)

var isCueID = regexp.MustCompile("^cue_[0-9a-z]{12}$")

// Object is a JSON object.
type Object = map[string]any

// Error is the answer of a server that has refused a request.
type Error struct {
	Request string
	Status  int
	Code    string
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", e.Request, e.Status, e.Code, e.Message)
}

// Cued is an account, the API with its key, and the clock of the server. A request that the server refuses fails
// the test; Call returns the error.
type Cued struct {
	URL, Key, Email     string
	Secret, AlertSecret string

	t      testing.TB
	server *server
	id     string
}

var (
	shared struct {
		once   sync.Once
		server *server
		err    error
	}
	accounts atomic.Int64
)

// New returns an account of its own on the server that the tests of a package share. It ends with the test. The
// clock is shared too: such a test must not call t.Parallel.
func New(t testing.TB) *Cued {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = startServer(start) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	c := &Cued{URL: shared.server.url, t: t, server: shared.server}
	c.signUp()
	t.Cleanup(func() {
		// What the account has left would be due in later tests.
		disabled := Object{"is_disabled": true}
		if _, err := c.server.call("PATCH", "/v1/admin/users/"+c.id, disabled, c.server.key); err != nil {
			t.Error(err)
		}
	})
	return c
}

// NewAt returns an account on a server of its own, whose clock begins at an instant.
func NewAt(t testing.TB, at string) *Cued {
	t.Helper()
	server, err := startServer(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.stop)
	c := &Cued{URL: server.url, t: t, server: server}
	c.signUp()
	return c
}

func (c *Cued) signUp() {
	c.t.Helper()
	email := fmt.Sprintf("test-%d@example.com", accounts.Add(1))
	account, err := c.server.call("POST", "/v1/admin/users", Object{"email": email}, c.server.key)
	if err != nil {
		c.t.Fatal(err)
	}
	c.id, c.Key, c.Email = account["id"].(string), account["api_key"].(string), email
	c.Secret = c.Get("/v1/auth/webhook-secret")["webhook_secret"].(string)
	c.AlertSecret = c.Get("/v1/auth/alert-webhook-secret")["alert_webhook_secret"].(string)
}

// Call sends a request; the error of a refused one is an *Error.
func (c *Cued) Call(method, path string, body any) (Object, error) {
	return c.server.call(method, path, body, c.Key)
}

func (c *Cued) must(method, path string, body any) Object {
	c.t.Helper()
	answer, err := c.Call(method, path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

// Get sends a request.
func (c *Cued) Get(path string) Object {
	c.t.Helper()
	return c.must("GET", path, nil)
}

// Post sends a request; the body may be nil.
func (c *Cued) Post(path string, body any) Object {
	c.t.Helper()
	return c.must("POST", path, body)
}

// Patch sends a request.
func (c *Cued) Patch(path string, body any) Object {
	c.t.Helper()
	return c.must("PATCH", path, body)
}

// Delete sends a request.
func (c *Cued) Delete(path string) Object {
	c.t.Helper()
	return c.must("DELETE", path, nil)
}

// Create creates a cue; the fields are those of POST /v1/cues.
func (c *Cued) Create(fields Object) Object {
	c.t.Helper()
	return c.Post("/v1/cues", fields)
}

// Fire runs a cue now, by its name or id.
func (c *Cued) Fire(cue string) Object {
	c.t.Helper()
	return c.Post("/v1/cues/"+c.cueID(cue)+"/fire", Object{})
}

// Runs returns the runs of a cue, or of all if it is empty, oldest first, once the deliveries under way have
// ended.
func (c *Cued) Runs(cue string) []Object {
	c.t.Helper()
	c.Advance("PT0S")
	query := url.Values{"limit": {"100"}}
	if cue != "" {
		query.Set("cue_id", c.cueID(cue))
	}
	runs := []Object{}
	for hasMore := true; hasMore; {
		query.Set("offset", strconv.Itoa(len(runs)))
		page := c.Get("/v1/executions?" + query.Encode())
		for _, run := range page["executions"].([]any) {
			runs = append(runs, run.(Object))
		}
		hasMore = page["has_more"].(bool)
	}
	for i, j := 0, len(runs)-1; i < j; i, j = i+1, j-1 {
		runs[i], runs[j] = runs[j], runs[i]
	}
	return runs
}

// Now returns the instant of the server. It stands still until the clock is moved.
func (c *Cued) Now() time.Time {
	c.t.Helper()
	now, err := time.Parse(time.RFC3339, c.Get("/v1/test/clock")["now"].(string))
	if err != nil {
		c.t.Fatal(err)
	}
	return now
}

// Advance moves the clock by an ISO 8601 duration, and returns once all that became due is done.
func (c *Cued) Advance(span string) Object {
	c.t.Helper()
	return c.Post("/v1/test/clock", Object{"advance": span})
}

// AdvanceTo moves the clock to an instant.
func (c *Cued) AdvanceTo(instant string) Object {
	c.t.Helper()
	moved, err := c.Call("POST", "/v1/test/clock", Object{"to": instant})
	if err != nil && strings.Contains(err.Error(), "forward") {
		c.t.Fatalf("%v; it is %s. NewAt(t, INSTANT) gives the test a server of its own", err, text(c.Now()))
	} else if err != nil {
		c.t.Fatal(err)
	}
	return moved
}

// UntilNext moves the clock to the next instant at which something is due: "next" in the result, nil without one.
func (c *Cued) UntilNext() Object {
	c.t.Helper()
	return c.Post("/v1/test/clock", Object{"until": "next"})
}

// Reset empties the server, for all, and gives c a new account. The clock stays where it is.
func (c *Cued) Reset() {
	c.t.Helper()
	_, err := c.server.call("POST", "/v1/test/reset", nil, "")
	if err == nil {
		err = c.server.registerOperator()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.signUp()
}

func (c *Cued) cueID(cue string) string {
	c.t.Helper()
	if isCueID.MatchString(cue) {
		return cue
	}
	q := []rune(cue)
	if len(q) > 100 {
		q = q[:100]
	}
	query := url.Values{"q": {string(q)}, "limit": {"100"}}
	var ids []string
	for _, known := range c.Get("/v1/cues?" + query.Encode())["cues"].([]any) {
		if known := known.(Object); known["name"] == cue {
			ids = append(ids, known["id"].(string))
		}
	}
	switch len(ids) {
	case 0:
		c.t.Fatalf("the account has no cues with the name '%s'", cue)
	case 1:
	default:
		c.t.Fatalf("the account has %d cues with the name '%s'", len(ids), cue)
	}
	return ids[0]
}

// server is a process "cued serve" with an empty temporary database.
type server struct {
	url, key string
	process  *exec.Cmd
	input    io.Closer
}

func startServer(at string) (*server, error) {
	program, err := binary()
	if err != nil {
		return nil, err
	}
	flags := []string{"--ephemeral", "--limits", "off", "--listen", "127.0.0.1:0", "--test-clock", at}
	process := exec.Command("sh", append([]string{"-c", guard, "sh", program, "serve"}, flags...)...)
	for _, variable := range os.Environ() {
		// Settings of the developer's own server are not for this one.
		if !strings.HasPrefix(variable, "CUED_") {
			process.Env = append(process.Env, variable)
		}
	}
	// Ctrl-C is for the tests.
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var log bytes.Buffer
	process.Stderr = &log
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	input, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	s := &server{process: process, input: input}
	// The first line is "cued listening on http://127.0.0.1:PORT".
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("%s serve did not start: %s", program, strings.TrimSpace(log.String()))
	}
	// Mails follow, and a full pipe would stop the server.
	output.Close()
	words := strings.Fields(line)
	s.url = words[len(words)-1]
	return s, s.registerOperator()
}

func (s *server) stop() {
	s.input.Close()
	s.process.Wait()
}

func (s *server) registerOperator() error {
	operator, err := s.call("POST", "/v1/auth/register", Object{"email": "operator@example.com"}, "")
	if err == nil {
		s.key = operator["api_key"].(string)
	}
	return err
}

// client ignores the proxy of the environment, which is not for servers on this machine.
var client = &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}

func (s *server) call(method, path string, body any, key string) (Object, error) {
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequest(method, s.url+path, bytes.NewReader(sent))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 400 {
		refused := struct{ Error Error }{Error{Request: method + " " + path, Status: response.StatusCode}}
		if json.Unmarshal(text, &refused) != nil {
			// Not of cued, such as that of a proxy.
			refused.Error.Code, refused.Error.Message = http.StatusText(response.StatusCode), string(text)
		}
		return nil, &refused.Error
	}
	if len(text) == 0 {
		return nil, nil
	}
	var answer Object
	return answer, json.Unmarshal(text, &answer)
}

func binary() (string, error) {
	named := os.Getenv("CUED_BIN")
	if named == "" {
		found, err := exec.LookPath("cued")
		if err != nil {
			return "", errors.New("there is no cued on the PATH: install it, or set CUED_BIN to its path")
		}
		return found, nil
	}
	if _, err := exec.LookPath(named); err != nil {
		return "", fmt.Errorf("CUED_BIN is %s, which is no program", named)
	}
	return named, nil
}

// Answer is what a receiver answers, after a delay; with HangUp it closes the connection instead.
type Answer struct {
	Status int // 200 if it is 0
	Body   string
	Header http.Header
	Delay  time.Duration
	HangUp bool
}

// HangUp is the answer that is none.
var HangUp = Answer{HangUp: true}

// Status is an answer without a body.
func Status(status int) Answer {
	return Answer{Status: status}
}

// Delivery is a request that a receiver has got.
type Delivery struct {
	At          time.Time // the instant of the server
	Method      string
	Path        string
	Header      http.Header
	Body        Object // the payload
	Raw         []byte
	CueID       string
	ExecutionID string
	Attempt     int
	IsSigned    bool // with a secret of the account; what is not gets a 401, and no expectation counts it
	Answer      Answer
}

// Match selects deliveries; empty fields match all.
type Match struct {
	Cue     string // its name or id
	Path    string
	Timeout time.Duration // of WaitForDelivery; 5 s if it is 0
}

// Receiver stands for your application: an HTTP server that records deliveries. It answers 200 unless the test
// says otherwise.
type Receiver struct {
	URL string

	c          *Cued
	mutex      sync.Mutex
	deliveries []*Delivery
	script     []Answer
	otherwise  func(*Delivery) Answer
	changed    chan struct{}
	closed     chan struct{}
}

// Receiver starts a receiver, which ends with the test.
func (c *Cued) Receiver() *Receiver {
	r := &Receiver{c: c, changed: make(chan struct{}), closed: make(chan struct{})}
	r.otherwise = func(*Delivery) Answer { return Answer{} }
	http := httptest.NewServer(http.HandlerFunc(r.receive))
	r.URL = http.URL
	c.t.Cleanup(func() {
		close(r.closed)
		http.CloseClientConnections()
		http.Close()
	})
	return r
}

// Answer answers the next deliveries, in this order.
func (r *Receiver) Answer(script ...Answer) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.script = append(r.script, script...)
}

// Always answers all deliveries that no script is left for.
func (r *Receiver) Always(answer func(*Delivery) Answer) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.otherwise = answer
}

// Deliveries returns all requests in their order, also those that are not signed.
func (r *Receiver) Deliveries() []*Delivery {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]*Delivery{}, r.deliveries...)
}

// WaitForDelivery waits until count signed deliveries that match have come, and returns the last.
func (r *Receiver) WaitForDelivery(count int, match Match) *Delivery {
	r.c.t.Helper()
	if match.Timeout == 0 {
		match.Timeout = 5 * time.Second
	}
	matches := r.matcher(match)
	deadline := time.After(match.Timeout)
	for {
		r.mutex.Lock()
		changed := r.changed
		r.mutex.Unlock()
		found := matches(r.Deliveries())
		if len(found) >= count {
			return found[count-1]
		}
		select {
		case <-changed:
		case <-deadline:
			r.fail(count, len(found), match, fmt.Sprintf(" in %v", match.Timeout))
			return nil
		}
	}
}

// ExpectDeliveries fails unless exactly so many that match have come, once those under way have ended.
func (r *Receiver) ExpectDeliveries(count int, match Match) []*Delivery {
	r.c.t.Helper()
	r.c.Advance("PT0S")
	found := r.matcher(match)(r.Deliveries())
	if len(found) != count {
		r.fail(count, len(found), match, "")
	}
	return found
}

func (r *Receiver) matcher(match Match) func([]*Delivery) []*Delivery {
	r.c.t.Helper()
	id := ""
	if match.Cue != "" {
		id = r.c.cueID(match.Cue)
	}
	return func(deliveries []*Delivery) (found []*Delivery) {
		for _, d := range deliveries {
			if d.IsSigned && (id == "" || d.CueID == id) && (match.Path == "" || d.Path == match.Path) {
				found = append(found, d)
			}
		}
		return found
	}
}

func (r *Receiver) fail(count, found int, match Match, waited string) {
	r.c.t.Helper()
	what := fmt.Sprintf("%d deliveries", count)
	if count == 1 {
		what = "1 delivery"
	}
	if match.Cue != "" {
		what += fmt.Sprintf(" of cue '%s'", match.Cue)
	}
	if match.Path != "" {
		what += " at " + match.Path
	}
	names := map[string]string{}
	for _, run := range r.c.Runs("") {
		names[run["id"].(string)] = run["cue_name"].(string)
	}
	var deliveries, runs, cues []string
	for _, d := range r.Deliveries() {
		deliveries = append(deliveries, d.describe(names))
	}
	for _, run := range r.c.Runs(match.Cue) {
		runs = append(runs, describeRun(run))
	}
	lines := []string{fmt.Sprintf("expected %s, got %d%s; it is %s", what, found, waited, text(r.c.Now()))}
	lines = append(append(lines, "deliveries:"), listed(deliveries)...)
	lines = append(append(lines, "runs:"), listed(runs)...)
	if len(runs) == 0 {
		for _, cue := range r.c.Get("/v1/cues?limit=100")["cues"].([]any) {
			cue := cue.(Object)
			cues = append(cues, fmt.Sprintf("'%s' %s, next run at %v", cue["name"], cue["status"], cue["next_run"]))
		}
		lines = append(append(lines, "cues:"), listed(cues)...)
	}
	r.c.t.Fatal(strings.Join(lines, "\n"))
}

// hangUp closes the connection within the head of a response: a kept connection that closes without a byte was idle for
// too long, and the server repeats the request at once.
func hangUp(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	io.WriteString(conn, "HTTP/1.1 ")
	conn.Close()
}

func (r *Receiver) receive(w http.ResponseWriter, request *http.Request) {
	raw, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	h := request.Header
	timestamp := h.Get("X-CueAPI-Timestamp")
	d := &Delivery{
		Method:      request.Method,
		Path:        request.URL.RequestURI(),
		Header:      h,
		Raw:         raw,
		CueID:       h.Get("X-CueAPI-Cue-Id"),
		ExecutionID: h.Get("X-CueAPI-Execution-Id"),
		IsSigned:    isSigned(h, timestamp, raw, r.c.Secret) || isSigned(h, timestamp, raw, r.c.AlertSecret),
	}
	if seconds, err := strconv.ParseInt(timestamp, 10, 64); err == nil {
		d.At = time.Unix(seconds, 0).UTC()
	}
	if attempt, err := strconv.Atoi(h.Get("X-CueAPI-Attempt")); err == nil {
		d.Attempt = attempt
	}
	if json.Unmarshal(raw, &d.Body) != nil {
		d.Body = nil
	}
	d.Answer = r.answerTo(d)
	r.mutex.Lock()
	r.deliveries = append(r.deliveries, d)
	close(r.changed)
	r.changed = make(chan struct{})
	r.mutex.Unlock()
	select {
	case <-time.After(d.Answer.Delay):
	case <-r.closed:
	}
	if d.Answer.HangUp {
		hangUp(w)
		return
	}
	for name, values := range d.Answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(d.Answer.Status)
	io.WriteString(w, d.Answer.Body)
}

func (r *Receiver) answerTo(d *Delivery) (answer Answer) {
	defer func() {
		// An application that fails answers 500.
		if reason := recover(); reason != nil {
			answer = Answer{Status: 500, Body: fmt.Sprint(reason)}
		}
		if answer.Status == 0 {
			answer.Status = 200
		}
	}()
	if !d.IsSigned {
		return Status(401)
	}
	r.mutex.Lock()
	otherwise := r.otherwise
	if len(r.script) > 0 {
		answer, r.script = r.script[0], r.script[1:]
		r.mutex.Unlock()
		return answer
	}
	r.mutex.Unlock()
	return otherwise(d)
}

func isSigned(h http.Header, timestamp string, raw []byte, secret string) bool {
	code := hmac.New(sha256.New, []byte(secret))
	code.Write([]byte(timestamp + "."))
	code.Write(raw)
	expected := "v1=" + hex.EncodeToString(code.Sum(nil))
	return hmac.Equal([]byte(expected), []byte(h.Get("X-CueAPI-Signature")))
}

func text(instant time.Time) string {
	if instant.IsZero() {
		return "no time"
	}
	return instant.Format(time.RFC3339Nano)
}

func listed(lines []string) (indented []string) {
	if len(lines) == 0 {
		return []string{"  none"}
	}
	if more := len(lines) - shown; more > 0 {
		indented = append(indented, fmt.Sprintf("  and %d before these", more))
		lines = lines[more:]
	}
	for _, line := range lines {
		indented = append(indented, "  "+line)
	}
	return indented
}

func (d *Delivery) describe(names map[string]string) string {
	line := fmt.Sprintf("%s %s %s", text(d.At), d.Method, d.Path)
	if name, ok := names[d.ExecutionID]; ok {
		line += fmt.Sprintf(" attempt %d of '%s'", d.Attempt, name)
	}
	if d.Answer.HangUp {
		line += " → hung up"
	} else {
		line += fmt.Sprintf(" → %d", d.Answer.Status)
	}
	if !d.IsSigned {
		line += ", not signed"
	}
	return line + " " + string(d.Raw)
}

func describeRun(run Object) string {
	line := fmt.Sprintf("%s '%s' %s, %v of %v attempts",
		run["scheduled_for"], run["cue_name"], run["status"], run["attempts"], run["max_attempts"])
	if run["error_message"] != nil {
		line += fmt.Sprintf(", %s", run["error_message"])
	}
	if run["next_retry"] != nil {
		line += fmt.Sprintf(", next attempt at %s", run["next_retry"])
	}
	return line
}
