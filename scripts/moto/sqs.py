"""moto's server on the port that the first argument names, fast enough for thousands of messages, of which it loses none."""

import logging
import sys

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sqs import models
from werkzeug.serving import WSGIRequestHandler, run_simple

# It counts all messages of the queue three times for each message that is received. Those of a test are never too old.
models.SQSBackend.is_message_valid_based_on_retention_period = lambda *_: True
# A deletion replaces the list of messages, so two at a time lose a message that is added in between.
delete_message = models.Queue.delete_message


def delete_alone(queue, receipt_handle):
    with queue._messages_lock:
        delete_message(queue, receipt_handle)


models.Queue.delete_message = delete_alone
# Connections stay open, as those to AWS do.
WSGIRequestHandler.protocol_version = "HTTP/1.1"
logging.getLogger("werkzeug").setLevel(logging.WARNING)
app = DomainDispatcherApplication(create_backend_app)
run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True)
