package cuedtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

var hourly = Object{"type": "recurring", "cron": "@hourly"}

// failing takes the place of a test and keeps why it has failed.
type failing struct {
	testing.TB
	reason string
}

func (f *failing) Fatal(reasons ...any) {
	f.reason = fmt.Sprint(reasons...)
	panic(f)
}

func (f *failing) Fatalf(format string, reasons ...any) {
	f.Fatal(fmt.Sprintf(format, reasons...))
}

// failure returns why a step fails the test.
func failure(t *testing.T, c *Cued, step func()) string {
	t.Helper()
	f := &failing{TB: t}
	c.t = f
	defer func() { c.t = t }()
	func() {
		defer func() {
			if reason := recover(); reason != nil && reason != any(f) {
				panic(reason)
			}
		}()
		step()
	}()
	return f.reason
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v\nwant %v", got, want)
	}
}

func contains(t *testing.T, got, want string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Fatalf("got %s\nwithout %s", got, want)
	}
}

func TestAnExpectationThatFailsSaysWhatWasDeliveredInstead(t *testing.T) {
	c := NewAt(t, "2030-01-31T22:30:00Z")
	r := c.Receiver()
	r.Answer(Status(503), HangUp)
	callback := Object{"url": r.URL + "/a"}
	c.Create(Object{"name": "invoices", "schedule": hourly, "callback": callback, "payload": Object{"send": 1}})
	equal(t, failure(t, c, func() { r.ExpectDeliveries(1, Match{Cue: "invoices"}) }),
		`expected 1 delivery of cue 'invoices', got 0; it is 2030-01-31T22:30:00Z
deliveries:
  none
runs:
  none
cues:
  'invoices' active, next run at 2030-01-31T23:00:00+00:00`)
	c.Advance("PT31M")
	equal(t, failure(t, c, func() { r.ExpectDeliveries(3, Match{Cue: "invoices"}) }),
		`expected 3 deliveries of cue 'invoices', got 2; it is 2030-01-31T23:01:00Z
deliveries:
  2030-01-31T23:00:00Z POST /a attempt 1 of 'invoices' → 503 {"send": 1}
  2030-01-31T23:01:00Z POST /a attempt 2 of 'invoices' → hung up {"send": 1}
runs:
  2030-01-31T23:00:00Z 'invoices' retrying, 2 of 4 attempts, the connection was closed before the response was complete, next attempt at 2030-01-31T23:06:00Z`)
	waited := failure(t, c, func() { r.WaitForDelivery(1, Match{Path: "/b", Timeout: 10 * time.Millisecond}) })
	contains(t, waited, "expected 1 delivery at /b, got 0 in 10ms; it is 2030-01-31T23:01:00Z\n")
	contains(t, waited, "attempt 2 of 'invoices'")
}

func TestARequestThatIsNotSignedIsNoDelivery(t *testing.T) {
	c := New(t)
	r := c.Receiver()
	forged, err := http.Post(r.URL+"/forged", "application/json", strings.NewReader(`{"send": "money"}`))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, forged.StatusCode, 401)
	failed := failure(t, c, func() { r.ExpectDeliveries(1, Match{}) })
	contains(t, failed, `no time POST /forged → 401, not signed {"send": "money"}`)
}

func TestAnAlertIsSignedToo(t *testing.T) {
	c := New(t)
	r := c.Receiver()
	c.Patch("/v1/auth/me", Object{"alert_webhook_url": r.URL + "/alert"})
	c.Post("/v1/alerts/test", nil)
	equal(t, r.WaitForDelivery(1, Match{Path: "/alert"}).Body["test"], true)
}

func TestAnAnswerHasHeadersAndABody(t *testing.T) {
	c := New(t)
	r := c.Receiver()
	r.Answer(Answer{Status: 429, Body: "too many", Header: http.Header{"Retry-After": {"7200"}}})
	c.Create(Object{"name": "a", "schedule": hourly, "callback": Object{"url": r.URL}})
	c.Fire("a")
	run := c.Runs("a")[0]
	equal(t, run["response_body"], "too many")
	equal(t, run["next_retry"], c.Now().Add(2*time.Hour).Format(time.RFC3339))
}

func TestAnApplicationThatPanicsAnswers500(t *testing.T) {
	c := New(t)
	r := c.Receiver()
	r.Always(func(*Delivery) Answer { panic("no paper") })
	c.Create(Object{"name": "a", "schedule": hourly, "callback": Object{"url": r.URL}})
	c.Fire("a")
	equal(t, r.WaitForDelivery(1, Match{}).Answer.Status, 500)
	equal(t, c.Runs("a")[0]["response_body"], "no paper")
}

func TestTheClockOfASharedServerOnlyMovesForward(t *testing.T) {
	c := New(t)
	before := c.Now().Format(time.RFC3339)
	c.Advance("PT1H")
	contains(t, failure(t, c, func() { c.AdvanceTo(before) }), "NewAt(t, INSTANT) gives")
}

func TestACueOfAnotherTestIsNeverDueAgain(t *testing.T) {
	t.Run("other", func(t *testing.T) {
		New(t).Create(Object{"name": "a", "schedule": hourly, "transport": "worker"})
	})
	equal(t, New(t).UntilNext()["next"], nil)
}

func TestAResetLeavesAnEmptyServerAndANewAccount(t *testing.T) {
	c := New(t)
	c.Create(Object{"name": "a", "schedule": hourly, "transport": "worker"})
	key, now := c.Key, c.Now()
	c.Reset()
	equal(t, c.Get("/v1/cues")["total"], 0.0)
	equal(t, c.Now(), now)
	equal(t, c.Key == key, false)
}

func TestAnUnknownNameAndARefusedRequestSaySo(t *testing.T) {
	c := New(t)
	equal(t, failure(t, c, func() { c.Fire("a") }), "the account has no cues with the name 'a'")
	failed := failure(t, c, func() { c.Create(Object{"schedule": hourly}) })
	equal(t, regexp.MustCompile(`^POST /v1/cues: 422 validation_error: .*name`).MatchString(failed), true)
}

func TestAServerThatDoesNotStartSaysWhy(t *testing.T) {
	_, err := startServer("soon")
	contains(t, err.Error(), `serve did not start: cued: --test-clock "soon" is not a timestamp`)
	t.Setenv("CUED_BIN", "/nowhere/cued")
	_, err = startServer(start)
	equal(t, err.Error(), "CUED_BIN is /nowhere/cued, which is no program")
	t.Setenv("CUED_BIN", "")
	t.Setenv("PATH", "/nowhere")
	_, err = startServer(start)
	contains(t, err.Error(), "install it, or set CUED_BIN")
}

func TestMailsAboutManyFailuresDoNotStopTheServer(t *testing.T) {
	c := NewAt(t, "2030-01-01T00:00:00Z")
	r := c.Receiver()
	r.Always(func(*Delivery) Answer { return Status(500) })
	retry := Object{"max_attempts": 1, "backoff_minutes": []int{1}}
	for number := 0; number < 10; number++ {
		name := strings.Repeat(fmt.Sprint(number), 100)
		c.Create(Object{"name": name, "schedule": hourly, "callback": Object{"url": r.URL}, "retry": retry})
	}
	// Ten mails an hour of some 200 bytes: more than a pipe holds.
	c.Advance("PT40H")
	r.ExpectDeliveries(400, Match{})
}

func TestARefusalWithoutABodyIsAnError(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(502)
	}))
	defer proxy.Close()
	_, err := (&server{url: proxy.URL}).call("POST", "/v1/cues", nil, "")
	equal(t, fmt.Sprint(err), "POST /v1/cues: 502 Bad Gateway: ")
}

func TestTenCuesInEachOfAHundredTests(t *testing.T) {
	for test := 1; test <= 100; test++ {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			c := New(t)
			r := c.Receiver()
			for number := 0; number < 10; number++ {
				name := fmt.Sprintf("cue-%d", number)
				payload := Object{"number": number}
				callback := Object{"url": r.URL}
				cue := c.Create(Object{"name": name, "schedule": hourly, "callback": callback, "payload": payload})
				c.Fire(cue["id"].(string))
			}
			got := map[any]bool{}
			for _, d := range r.ExpectDeliveries(10, Match{}) {
				got[d.Body["number"]] = true
			}
			equal(t, len(got), 10)
		})
	}
}
