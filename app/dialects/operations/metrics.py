"""`GET /metrics` for Prometheus. Nothing is counted here: the parts count, and are asked when somebody scrapes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure: its name without the prefix, what it is, and how it is read. A mapping has a value a label."""

    name: str
    help: str
    read: Callable[[], float | Mapping[str, float]]
    is_counter: bool = False
    label: str = "kind"


def router(readings: Iterable[Reading]) -> APIRouter:
    """The route over these figures."""
    registry = CollectorRegistry()
    registry.register(_Readings(tuple(readings)))
    api = APIRouter(tags=["operations"])

    @api.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """Figures in Prometheus' text format."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return api


class _Readings(Collector):
    def __init__(self, readings: tuple[Reading, ...]) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Metric]:
        for reading in self._readings:
            family = CounterMetricFamily if reading.is_counter else GaugeMetricFamily
            value = reading.read()
            name = f"tarko_{reading.name}"
            if not isinstance(value, Mapping):
                yield family(name, reading.help, value=value)
                continue
            metric = family(name, reading.help, labels=[reading.label])
            for label, part in value.items():
                metric.add_metric([label], part)
            yield metric
