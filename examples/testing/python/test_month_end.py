import pytest


@pytest.fixture
def invoices(cued, receiver):
    return cued.create(
        name="invoices",
        schedule={"type": "recurring", "cron": "0 0 1 * *", "timezone": "Europe/Berlin"},
        callback={"url": receiver.url},
        payload={"send": "invoices"},
    )


@pytest.mark.cued(at="2030-01-31T12:00:00Z")
def test_invoices_are_sent_at_midnight_in_berlin(cued, receiver, invoices):
    cued.advance_to("2030-01-31T22:59:59Z")
    receiver.expect_deliveries(0)
    cued.advance("PT1S")
    assert receiver.wait_for_delivery().body == {"send": "invoices"}


def test_a_failed_call_is_repeated(cued, receiver, invoices):
    receiver.answer(503)
    cued.until_next()
    cued.until_next()
    receiver.expect_deliveries(2, cue="invoices")
