"""SDKs of Python, first at the vendor itself and then through the gateway: both must give the same.

Prints one JSON object: the number of SDKs, how many requests got a response of the vendor, the idempotency keys that were sent, and
what the vendor broke off.
"""

import concurrent.futures
import json
import os
import time
import uuid

import boto3
import botocore.config
import botocore.exceptions
import github
import openai
import stripe

GATEWAY, TOKEN, VENDOR = os.environ["GATEWAY"], os.environ["TOKEN"], os.environ["VENDOR"]
VENDORS_KEY = os.environ["IC_SDKS_KEY"]
EACH = 25
SPACING = 0.3
answered = 0
keys = {}


class Sdks:
    """The four SDKs. Where they send to is all that differs between a direct call and one through the gateway."""

    def __init__(self, openai_url, github_url, stripe_url, key, proxies):
        self.openai = openai.OpenAI(base_url=openai_url, api_key=key)
        self.stripe = stripe.StripeClient(key, base_addresses={"api": stripe_url})
        # Lazy: an object that was fetched would follow the `url` in its JSON, which the gateway leaves as it is.
        self.github = github.Github(base_url=github_url, auth=github.Auth.Token(key), seconds_between_requests=0, lazy=True)
        config = botocore.config.Config(proxies=proxies)
        aws = {"region_name": "eu-west-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
        self.sqs = boto3.client("sqs", endpoint_url=f"{VENDOR}/sqs", config=config, **aws)

    def ask(self, text, **more):
        return self.openai.chat.completions.create(**{"model": "m", "messages": [{"role": "user", "content": text}], **more})

    def customer(self, key, name="n"):
        keys[key] = keys.get(key, 0) + 1
        return self.stripe.v1.customers.create({"name": name}, {"idempotency_key": key})

    def repository(self):
        return self.github.get_repo("a/b")

    def queues(self):
        return self.sqs.list_queues()["QueueUrls"]

    def send(self, text):
        return self.sqs.send_message(QueueUrl=f"{VENDOR}/sqs", MessageBody=text)


def error_of(call):
    """What a program sees of the error with which the call ends."""
    try:
        call()
    except (openai.APIStatusError, stripe.StripeError, github.GithubException, botocore.exceptions.ClientError) as error:
        return type(error).__name__, str(error)
    raise AssertionError("an error of the vendor is missing")


def streamed(sdks):
    """The streamed chunks. Each must arrive before the vendor sends the next."""
    contents = []
    for chunk in sdks.ask("ping", stream=True):
        late = time.time() - float(chunk.id)
        assert late < SPACING, f"chunk {chunk.choices[0].delta.content} arrived {late:.3f} s after it was sent"
        contents.append(chunk.choices[0].delta.content)
    assert len(contents) == 5, contents
    return contents


def results(sdks):
    """One of each kind of call, and what the SDK makes of its response."""
    global answered
    answered += 14
    return {
        "openai": sdks.ask("ping").to_dict(),
        "openai streamed": streamed(sdks),
        "openai error": error_of(lambda: sdks.ask("ping", model="missing")),
        "stripe": sdks.customer("same").to_dict(),
        "stripe error": error_of(lambda: sdks.stripe.v1.customers.retrieve("missing")),
        # Four pages.
        "github": [(issue.number, issue.title) for issue in sdks.repository().get_issues()],
        "github error": error_of(lambda: sdks.github.get_user("missing").login),
        "github user": sdks.github.get_user().login,
        "sqs": sdks.queues(),
        "sqs sent": sdks.send("hello")["MessageId"],
        "sqs error": error_of(lambda: sdks.sqs.get_queue_url(QueueName="missing")),
    }


def at_once(call):
    """EACH of them at once: far more than the vendor takes in a second."""
    global answered
    with concurrent.futures.ThreadPoolExecutor(EACH) as pool:
        done = list(pool.map(call, range(EACH)))
    assert all(done), done
    answered += len(done)


def breaks(call):
    """The vendor breaks the connection off without a response. The SDK's own error shows the gateway's text."""
    kind, text = error_of(call)
    assert "broke before the response" in text, f"{kind} does not show the gateway's text: {text}"


direct = Sdks(f"{VENDOR}/openai", f"{VENDOR}/github", f"{VENDOR}/stripe", VENDORS_KEY, {})
expected = results(direct)
# The gateway does not know what was sent without it.
time.sleep(1.2)

proxy = GATEWAY.replace("http://", f"http://acme:{TOKEN}@")
through = Sdks(f"{GATEWAY}/acme/openai", f"{GATEWAY}/acme/github", f"{GATEWAY}/acme/stripe", TOKEN, {"http": proxy})
found = results(through)
for name in expected:
    assert found[name] == expected[name], f"{name}: {found[name]} through the gateway, {expected[name]} without it"

at_once(lambda _: through.ask("ping").choices[0].message.content == "pong")
at_once(lambda n: through.customer(f"python-{n}").id == f"cus_python-{n}")
at_once(lambda _: through.queues() == ["http://q/1"])

# The SDK makes a key of its own, a UUID: those of the gateway have no hyphens.
own_key = through.stripe.v1.customers.create({"name": "n"}).id.removeprefix("cus_")
assert own_key == str(uuid.UUID(own_key)), f"{own_key} is not the SDK's key"
keys[own_key] = 1
answered += 1

breaks(lambda: through.ask("break-python-openai"))
breaks(lambda: through.repository().create_issue("break-python-github"))
breaks(lambda: through.send("break-python-sqs"))
# With a key a request can be repeated, and is.
assert through.customer("python-again", "break-once-python").id == "cus_python-again"
keys["python-again"] += 1
answered += 1

broken = {"break-python-openai": 1, "break-python-github": 1, "break-python-sqs": 1, "break-once-python": 2}
print(json.dumps({"clients": 4, "answered": answered, "keys": keys, "broken": broken}))
