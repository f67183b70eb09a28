"""SDKs of Python through the gateway. Prints one JSON object: how many requests were answered as the vendor answers."""

import concurrent.futures
import json
import os
import time

import boto3
import botocore.config
import github
import openai
import stripe

GATEWAY, TOKEN, VENDOR = os.environ["GATEWAY"], os.environ["TOKEN"], os.environ["VENDOR"]
EACH = 25
answered = 0


def at_once(call):
    """EACH of them at once: far more than the vendor takes in a second."""
    global answered
    with concurrent.futures.ThreadPoolExecutor(EACH) as pool:
        done = list(pool.map(lambda _: call(), range(EACH)))
    assert all(done), done
    answered += len(done)


client = openai.OpenAI(base_url=f"{GATEWAY}/acme/openai", api_key=TOKEN)
ask = lambda text, **more: client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}], **more)
at_once(lambda: ask("ping").choices[0].message.content == "pong")

began, seen = time.monotonic(), []
for chunk in ask("ping", stream=True):
    seen.append(time.monotonic() - began)
assert len(seen) == 5 and seen[4] - seen[0] > 0.6, f"the chunks came together: {seen}"
answered += 1

try:
    ask("break here")
    raise AssertionError("an answer without a vendor's")
except openai.APIStatusError as error:
    assert error.status_code == 422, error
    assert "broke before the response" in str(error), f"the SDK does not show the gateway's text: {error}"

stripes = stripe.StripeClient(TOKEN, base_addresses={"api": f"{GATEWAY}/acme/stripe"})
at_once(lambda: stripes.v1.customers.create({"name": "n"}).id == "cus_1")

# Lazy: an object that was fetched would follow the `url` in its JSON, which the gateway leaves as it is.
auth = github.Auth.Token(TOKEN)
hub = github.Github(base_url=f"{GATEWAY}/acme/github", auth=auth, seconds_between_requests=0, lazy=True)
issues = [issue.number for issue in hub.get_repo("a/b").get_issues()]
assert len(issues) == 12, issues
answered += 4

proxy = GATEWAY.replace("http://", f"http://acme:{TOKEN}@")
sqs = boto3.client(
    "sqs",
    region_name="eu-west-1",
    endpoint_url=f"{VENDOR}/sqs",
    aws_access_key_id="a",
    aws_secret_access_key="b",
    config=botocore.config.Config(proxies={"http": proxy}),
)
at_once(lambda: sqs.list_queues()["QueueUrls"] == ["http://q/1"])

print(json.dumps({"clients": 4, "answered": answered}))
