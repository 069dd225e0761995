import pytest
from cued_testing import HANG_UP, Answer
from invoices import Invoices


@pytest.fixture
def app(cued, receiver):
    app = Invoices(cued.url, cued.key, receiver.url)
    receiver.always(lambda delivery: app.handle(delivery.body))
    app.install()
    return app


@pytest.mark.cued(at="2030-01-31T12:00:00Z")
def test_invoices_are_sent_at_midnight_in_berlin(cued, receiver, app):
    cued.advance_to("2030-01-31T22:59:59Z")
    receiver.expect_deliveries(0)
    cued.advance("PT1S")
    assert receiver.wait_for_delivery(path="/invoices").body == {"send": "invoices"}
    assert app.sent == ["invoices"]


def test_a_call_that_fails_is_repeated(cued, receiver, app):
    receiver.answer(503, HANG_UP)
    cued.until_next()
    receiver.expect_deliveries(1, cue="invoices")
    assert app.sent == []
    cued.advance("PT10M")
    first, second, third = receiver.expect_deliveries(3, cue="invoices")
    assert (third.at - first.at).total_seconds() == 360
    assert app.sent == ["invoices"]
    assert [run["status"] for run in cued.runs("invoices")] == ["success"]


def test_an_answer_that_is_too_late_is_a_failure(cued, receiver):
    receiver.answer(Answer(delay=3))
    callback = {"url": receiver.url, "timeout_seconds": 1}
    cue = cued.create(name="slow", schedule={"type": "recurring", "cron": "@daily"}, callback=callback)
    cued.fire(cue)
    (run,) = cued.runs(cue)
    assert (run["status"], run["cause"]) == ("retrying", "timeout")


def test_a_worker_makes_the_report(cued, app):
    app.work()
    assert app.reports == []
    cued.until_next()
    app.work()
    assert app.reports == ["report"]
    assert [run["status"] for run in cued.runs("report")] == ["success"]
