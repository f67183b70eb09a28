"""moto's server on the port that the first argument names, with what makes it too slow for thousands of messages left out."""

import logging
import sys

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sqs import models
from werkzeug.serving import WSGIRequestHandler, run_simple

# It counts all messages of the queue three times for each message that is received. Those of a test are never too old.
models.SQSBackend.is_message_valid_based_on_retention_period = lambda *_: True
# Connections stay open, as those to AWS do.
WSGIRequestHandler.protocol_version = "HTTP/1.1"
logging.getLogger("werkzeug").setLevel(logging.WARNING)
app = DomainDispatcherApplication(create_backend_app)
run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True)
