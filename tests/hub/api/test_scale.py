"""Scaling advice over HTTP, also as KEDA's scaler reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import yaml

from headrace.client.api.scale import profile_of
from tests.docs.pages import ROOT
from tests.hub.api.world import small_app, world
from tests.hub.serving import Served, serving
from tests.support.apps import url_of

MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((ROOT / "docs" / "operations" / "keda.yaml").read_text(encoding="utf-8"))
)


async def test_each_queue_has_its_advice(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        for requires in ({}, {}, {"gpu": True}):
            await hub.app.submit("resize", {"image": "cat.png"}, requires=requires)
        advice = (await hub.client.get("/api/scale?wait=1.5m")).json()
        assert advice["wait"] == 90.0
        default, images = advice["items"]
        assert (default["queue"], default["backlog"], default["slots_needed"]) == ("default", 0, 0)
        assert (images["queue"], images["backlog"], images["slots"], images["slots_needed"]) == ("images", 3, 0, 2)
        assert {part["profile"]: part["backlog"] for part in images["requirements"]} == {
            profile_of({}): 2,
            profile_of({"gpu": True}): 1,
        }
        [mail] = (await hub.client.get("/api/scale?queue=mail")).json()["items"]
        assert (mail["queue"], mail["slots_needed"]) == ("mail", 0)


async def test_one_queue_has_a_number_of_its_own(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        await hub.app.submit("resize", {"image": "cat.png"}, requires={"gpu": True})
        await hub.app.submit("resize", {"image": "cat.png"}, queue="a/b")

        async def needed(query: str) -> int:
            found: int = (await hub.client.get(f"/api/scale/{query}")).json()["slots_needed"]
            return found

        assert await needed("images?wait=10s") == 1
        assert await needed(f"images?profile={profile_of({'gpu': True})}") == 1
        assert await needed(f"images?profile={profile_of({})}") == 0
        assert await needed("a/b?wait=30s") == 1
        assert await needed("never-used") == 0, "an autoscaler needs a number before the first job"


async def test_what_cannot_be_understood_is_named(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        for query in ("wait=soon", "wait=-1", "wait=", "profile=gpu", "until=1"):
            reply = await hub.client.get(f"/api/scale/images?{query}")
            assert reply.status_code == 400, query
            assert reply.json()["errors"][0]["field"] == query.partition("=")[0]


async def test_a_key_that_reads_may_ask_unless_it_is_a_customers(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        made = [await hub.app.keys.create("keda", ["read"]), await hub.app.keys.create("app", ["submit"])]
        made.append(await hub.app.keys.create("ann", ["read"], customer="ann"))
        keys = [one.text for one in made]
        for path in ("/api/scale", "/api/scale/images"):
            replies = [await hub.client.get(path, headers={"Authorization": f"Bearer {key}"}) for key in keys]
            assert [reply.status_code for reply in replies] == [200, 403, 403]
            assert (await hub.client.get(path)).status_code == 401


class Keda:
    """What the scaler ``metrics-api`` does with a trigger: it asks with the key, and reads a number at a place."""

    def __init__(self, hub: Served, key: str) -> None:
        kinds = {manifest["kind"]: manifest["spec"] for manifest in MANIFESTS}
        self.scaled, self.authentication = kinds["ScaledObject"], kinds["TriggerAuthentication"]
        [self.trigger] = self.scaled["triggers"]
        self._hub, self._secrets = hub, {"token": key}

    async def value(self) -> float:
        about = self.trigger["metadata"]
        [reference] = self.authentication["secretTargetRef"]
        assert about["authMode"] == "bearer"
        headers = {"Authorization": f"Bearer {self._secrets[reference['parameter']]}"}
        url = httpx2.URL(about["url"])
        path = url.raw_path.decode()
        reply = await self._hub.client.get(path, headers=headers)
        assert reply.status_code == 200, reply.text
        found = reply.json()
        for part in about["valueLocation"].split("."):
            found = found[part]
        assert isinstance(found, int | float)
        return found

    async def replicas(self) -> int:
        """As KEDA decides between none and one, and the autoscaler that it makes about more."""
        value = await self.value()
        least, most = int(self.scaled["minReplicaCount"]), int(self.scaled["maxReplicaCount"])
        if value <= float(self.trigger["metadata"]["activationTargetValue"]):
            return least
        wanted = -(-int(value) // int(self.trigger["metadata"]["targetValue"]))
        return max(1, min(most, wanted))


async def test_keda_scales_from_nothing_and_back(tmp_path: Path) -> None:
    async with serving(small_app(url_of("sqlite", tmp_path))) as hub:
        key = (await hub.app.keys.create("keda", ["read"])).text
        keda = Keda(hub, key)
        assert await keda.replicas() == 0
        drafts = [await hub.app.draft("resize", {"image": f"{n}.png"}) for n in range(30)]
        await hub.app.submit_many(drafts)
        hub.app.session.loads._last = None  # not to wait for a second
        assert await keda.value() == 15
        assert await keda.replicas() == 2
