// Package invoices is the application: it sends the invoices of a month when it ends in Berlin, and makes reports
// on request.
package invoices

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

type object = map[string]any

// App has a URL where it receives POST /invoices.
type App struct {
	CuedURL, Key, OwnURL string
	Sent, Reports        []string
}

// Install runs once, when the application is deployed.
func (a *App) Install() error {
	schedule := object{"type": "recurring", "cron": "0 0 1 * *", "timezone": "Europe/Berlin"}
	invoices := object{
		"name":     "invoices",
		"schedule": schedule,
		"callback": object{"url": a.OwnURL + "/invoices"},
		"payload":  object{"send": "invoices"},
		"retry":    object{"backoff_minutes": []int{1, 5}},
	}
	if err := a.call("POST", "/v1/cues", invoices, nil); err != nil {
		return err
	}
	task := object{"task": "report"}
	report := object{"name": "report", "schedule": schedule, "transport": "worker", "payload": task}
	return a.call("POST", "/v1/cues", report, nil)
}

// Handle is the handler of POST /invoices.
func (a *App) Handle(payload map[string]any) {
	a.Sent = append(a.Sent, payload["send"].(string))
}

// Work is one turn of the worker: it claims the runs that wait, and reports each.
func (a *App) Work() error {
	var waiting struct{ Executions []struct{ ID string } }
	if err := a.call("GET", "/v1/executions/claimable", nil, &waiting); err != nil {
		return err
	}
	for _, run := range waiting.Executions {
		var claim struct{ Payload struct{ Task string } }
		path := "/v1/executions/" + run.ID
		if err := a.call("POST", path+"/claim", object{"worker_id": "reports"}, &claim); err != nil {
			return err
		}
		a.Reports = append(a.Reports, claim.Payload.Task)
		if err := a.call("POST", path+"/outcome", object{"success": true, "result": "1 page"}, nil); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) call(method, path string, body, answer any) error {
	sent := &bytes.Buffer{}
	if body != nil {
		if err := json.NewEncoder(sent).Encode(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequest(method, a.CuedURL+path, sent)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+a.Key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 400 {
		return fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
