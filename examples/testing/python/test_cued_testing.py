"""Tests of the kit itself: you need not copy them."""

import re
import socket
from contextlib import ExitStack
from datetime import timedelta

import pytest
from cued_testing import HANG_UP, Answer, Cued, CuedError, Server, instant

HOURLY = {"type": "recurring", "cron": "@hourly"}


def failure(expectation, *arguments, **options):
    with pytest.raises(pytest.fail.Exception) as failed:
        expectation(*arguments, **options)
    return str(failed.value)


@pytest.mark.cued(at="2030-01-31T22:30:00Z")
def test_an_expectation_that_fails_says_what_was_delivered_instead(cued, receiver):
    receiver.answer(503, HANG_UP)
    cue = cued.create(
        name="invoices", schedule=HOURLY, callback={"url": f"{receiver.url}/a"}, payload={"send": 1}
    )
    assert failure(receiver.expect_deliveries, 1, cue=cue) == (
        "expected 1 delivery of cue 'invoices', got 0; it is 2030-01-31T22:30:00Z\n"
        "deliveries:\n"
        "  none\n"
        "runs:\n"
        "  none\n"
        "cues:\n"
        "  'invoices' active, next run at 2030-01-31T23:00:00+00:00"
    )
    cued.advance("PT31M")
    assert failure(receiver.expect_deliveries, 3, cue="invoices") == (
        "expected 3 deliveries of cue 'invoices', got 2; it is 2030-01-31T23:01:00Z\n"
        "deliveries:\n"
        "  2030-01-31T23:00:00Z POST /a attempt 1 of 'invoices' → 503 {\"send\": 1}\n"
        "  2030-01-31T23:01:00Z POST /a attempt 2 of 'invoices' → hung up {\"send\": 1}\n"
        "runs:\n"
        "  2030-01-31T23:00:00Z 'invoices' retrying, 2 of 4 attempts, the connection was closed before the response was complete, "
        "next attempt at 2030-01-31T23:06:00Z"
    )
    waited = failure(receiver.wait_for_delivery, path="/b", timeout=0.01)
    assert waited.startswith("expected 1 delivery at /b, got 0 in 0.01 s; it is 2030-01-31T23:01:00Z\n")
    assert "attempt 2 of 'invoices'" in waited


def test_a_request_that_is_not_signed_is_no_delivery(cued, receiver):
    forger = Server()
    forger.url = receiver.url
    with pytest.raises(TypeError):
        forger.call("POST", "/forged", {"send": "money"})
    assert 'no time POST /forged → 401, not signed {"send": "money"}' in failure(
        receiver.expect_deliveries, 1
    )


def test_an_alert_is_signed_too(cued, receiver):
    cued.patch("/v1/auth/me", {"alert_webhook_url": f"{receiver.url}/alert"})
    cued.post("/v1/alerts/test")
    assert receiver.wait_for_delivery(path="/alert").body["test"]


def test_an_answer_has_headers_and_a_body(cued, receiver):
    receiver.answer(Answer(429, body={"too": "many"}, headers={"Retry-After": "7200"}))
    cued.fire(cued.create(name="a", schedule=HOURLY, callback={"url": receiver.url}))
    (run,) = cued.runs("a")
    assert run["response_body"] == '{"too": "many"}'
    assert instant(run["next_retry"]) == cued.now + timedelta(hours=2)


def test_an_application_that_raises_answers_500(cued, receiver):
    receiver.always(lambda delivery: {}["missing"])
    cued.fire(cued.create(name="a", schedule=HOURLY, callback={"url": receiver.url}))
    assert receiver.wait_for_delivery().answer.status == 500
    assert "missing" in cued.runs("a")[0]["response_body"]


def test_the_clock_of_a_shared_server_only_moves_forward(cued):
    before = cued.now
    cued.advance("PT1H")
    with pytest.raises(CuedError, match=re.escape("@pytest.mark.cued(at=INSTANT)")):
        cued.advance_to(before)


def test_a_cue_of_another_test_is_never_due_again(cued_server, cued):
    with Cued(cued_server) as other:
        other.create(name="a", schedule=HOURLY, transport="worker")
    assert cued.until_next()["next"] is None


def test_a_reset_leaves_an_empty_server_and_a_new_account(cued):
    cued.create(name="a", schedule=HOURLY, transport="worker")
    key, now = cued.key, cued.now
    cued.reset()
    assert (cued.get("/v1/cues")["total"], cued.now, cued.key == key) == (0, now, False)


def test_an_unknown_name_and_a_refused_request_say_so(cued):
    with pytest.raises(LookupError, match="the account has no cues with the name 'a'"):
        cued.fire("a")
    with pytest.raises(CuedError, match="POST /v1/cues: 422 validation_error: .*name"):
        cued.create(schedule=HOURLY)


def test_a_server_that_does_not_start_says_why(monkeypatch, tmp_path):
    assert 'serve did not start: cued: --test-clock "soon" is not a timestamp' in failure(
        Server("soon").__enter__
    )
    monkeypatch.setenv("CUED_BIN", str(tmp_path / "cued"))
    assert failure(Server().__enter__) == f"CUED_BIN is {tmp_path}/cued, which is no program"
    monkeypatch.delenv("CUED_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "install it, or set CUED_BIN" in failure(Server().__enter__)


@pytest.mark.cued(at="2030-01-01T00:00:00Z")
def test_mails_about_many_failures_do_not_stop_the_server(cued, receiver):
    receiver.always(500)
    for number in range(10):
        cued.create(
            name=f"{number}" * 100,
            schedule=HOURLY,
            callback={"url": receiver.url},
            retry={"max_attempts": 1, "backoff_minutes": [1]},
        )
    # Ten mails an hour of some 200 bytes: more than a pipe holds.
    cued.advance("PT40H")
    receiver.expect_deliveries(400)


def test_a_hundred_deliveries_at_once_wait_for_a_thread(receiver):
    receiver._http.shutdown()  # none is accepted
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(receiver._http.server_address, timeout=0.5))


@pytest.mark.parametrize("test", range(100))
def test_ten_cues_of_one_of_a_hundred_tests(cued, receiver, test):
    for number in range(10):
        cue = cued.create(
            name=f"cue-{number}", schedule=HOURLY, callback={"url": receiver.url}, payload={"number": number}
        )
        cued.fire(cue)
    delivered = receiver.expect_deliveries(10)
    assert sorted(delivery.body["number"] for delivery in delivered) == list(range(10))
