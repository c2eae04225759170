"""The models that there are."""

from __future__ import annotations

from plumbline.conformance.models import amqp, jetstream
from plumbline.conformance.models.model import Model

MODELS: dict[str, Model] = {model.name: model for model in (jetstream.MODEL, amqp.MODEL)}
