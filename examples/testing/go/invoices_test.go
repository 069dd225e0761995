package invoices

import (
	"reflect"
	"testing"
	"time"

	"example.com/invoices/cuedtest"
)

func startApp(t *testing.T, cued *cuedtest.Cued) (*cuedtest.Receiver, *App) {
	t.Helper()
	receiver := cued.Receiver()
	app := &App{CuedURL: cued.URL, Key: cued.Key, OwnURL: receiver.URL}
	receiver.Always(func(d *cuedtest.Delivery) cuedtest.Answer {
		app.Handle(d.Body)
		return cuedtest.Status(200)
	})
	if err := app.Install(); err != nil {
		t.Fatal(err)
	}
	return receiver, app
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestInvoicesAreSentAtMidnightInBerlin(t *testing.T) {
	cued := cuedtest.NewAt(t, "2030-01-31T12:00:00Z")
	receiver, app := startApp(t, cued)
	cued.AdvanceTo("2030-01-31T22:59:59Z")
	receiver.ExpectDeliveries(0, cuedtest.Match{})
	cued.Advance("PT1S")
	delivery := receiver.WaitForDelivery(1, cuedtest.Match{Path: "/invoices"})
	equal(t, delivery.Body, cuedtest.Object{"send": "invoices"})
	equal(t, app.Sent, []string{"invoices"})
}

func TestACallThatFailsIsRepeated(t *testing.T) {
	cued := cuedtest.New(t)
	receiver, app := startApp(t, cued)
	receiver.Answer(cuedtest.Status(503), cuedtest.HangUp)
	cued.UntilNext()
	receiver.ExpectDeliveries(1, cuedtest.Match{Cue: "invoices"})
	equal(t, len(app.Sent), 0)
	cued.Advance("PT10M")
	delivered := receiver.ExpectDeliveries(3, cuedtest.Match{Cue: "invoices"})
	equal(t, delivered[2].At.Sub(delivered[0].At), 6*time.Minute)
	equal(t, app.Sent, []string{"invoices"})
	equal(t, cued.Runs("invoices")[0]["status"], "success")
}

func TestAnAnswerThatIsTooLateIsAFailure(t *testing.T) {
	cued := cuedtest.New(t)
	receiver := cued.Receiver()
	receiver.Answer(cuedtest.Answer{Delay: 3 * time.Second})
	cued.Create(cuedtest.Object{
		"name":     "slow",
		"schedule": cuedtest.Object{"type": "recurring", "cron": "@daily"},
		"callback": cuedtest.Object{"url": receiver.URL, "timeout_seconds": 1},
	})
	cued.Fire("slow")
	run := cued.Runs("slow")[0]
	equal(t, []any{run["status"], run["cause"]}, []any{"retrying", "timeout"})
}

func TestAWorkerMakesTheReport(t *testing.T) {
	cued := cuedtest.New(t)
	_, app := startApp(t, cued)
	for _, want := range [][]string{nil, {"report"}} {
		if err := app.Work(); err != nil {
			t.Fatal(err)
		}
		equal(t, app.Reports, want)
		cued.UntilNext()
	}
	equal(t, cued.Runs("report")[0]["status"], "success")
}
