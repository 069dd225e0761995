import json, os, urllib.error, urllib.request

def call(method, path, body=None, headers={}):
    request = urllib.request.Request(os.environ["CUED_URL"] + path, method=method, headers={
        "Authorization": "Bearer " + os.environ["CUED_API_KEY"],
        "Content-Type": "application/json", **headers})
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, data) as response:
            text = response.read()
    except urllib.error.HTTPError as error:
        raise RuntimeError(error.read().decode()) from error
    return json.loads(text) if text else None
