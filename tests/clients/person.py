"""A person with a browser and a mailbox: opens pages, fills in their forms, follows the links of mails."""

import urllib.parse
import urllib.request
from html.parser import HTMLParser


class Page(HTMLParser):
    """The only form of a page, and where it posts to."""

    def __init__(self, text):
        super().__init__()
        self.action, self.values, self.text = None, {}, text
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "form":
            self.action = attributes["action"]
        elif tag == "input":
            self.values[attributes["name"]] = attributes.get("value") or ""


def submit(url, **entered):
    """Opens a page, fills in its form and sends it: the page that comes back."""
    with urllib.request.urlopen(url, timeout=30) as response:
        page = Page(response.read().decode())
    assert page.action, f"no form at {url}: {page.text}"
    unknown = entered.keys() - page.values.keys()
    assert not unknown, f"the form has no {unknown}"
    body = urllib.parse.urlencode({**page.values, **entered}).encode()
    with urllib.request.urlopen(urllib.parse.urljoin(url, page.action), body, timeout=30) as response:
        return Page(response.read().decode())


def confirm_mail(cued, email):
    """Opens the link of the next mail and confirms."""
    page = submit(cued.mail(email))
    assert "signed in" in page.text, page.text


def sign_in(cued, page, email):
    """The steps of a person after a device shows the address of a page."""
    submit(page, email=email)
    confirm_mail(cued, email)
