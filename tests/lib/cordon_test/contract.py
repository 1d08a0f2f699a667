"""schema/openapi.json as the judge of each exchange: an answer must have a documented status, type and
form; a body that was taken must be one that the document allows. What occurred is recorded, one line a
exchange, in $CORDON_RECORD/<program>.jsonl, for tests/api/test_zz_collected.py."""
import json
import os
import re
import sys
import urllib.parse

import jsonschema

SOURCE = os.environ.get("CORDON_SOURCE", "")


class Contract:
    def __init__(self, spec):
        self.spec = spec
        self.validators = {}
        self.operations = []
        for path, methods in spec["paths"].items():
            pattern = re.compile(re.sub(r"\{\w+\}", "[^/?#]+", path) + r"(?:[?#].*)?\Z", re.S)
            for method, op in methods.items():
                self.operations.append((method.upper(), pattern, path, op))
        # A path without parameters is looked at first: /sites/batch is no /sites/{id}.
        self.operations.sort(key=lambda o: o[2].count("{"))

    def find(self, method, target):
        method = "GET" if method == "HEAD" else method
        path, mark, query = target.partition("?")
        target = re.sub("%(?!2[fF])[0-9a-fA-F]{2}", lambda m: urllib.parse.unquote(m.group()), path) + mark + query
        for m, pattern, path, op in self.operations:
            if m == method and pattern.match(target):
                return f"{m} {path}", op
        return None, None

    def resolve(self, schema):
        at = None
        while "$ref" in schema:
            at = schema["$ref"].rsplit("/", 1)[1]
            schema = self.spec["components"]["schemas"][at]
        return at, schema

    def validator(self, schema):
        if id(schema) not in self.validators:
            whole = dict(schema, components=self.spec["components"])
            self.validators[id(schema)] = (jsonschema.Draft202012Validator(whole), schema)
        return self.validators[id(schema)][0]

    def faults(self, schema, value):
        return [f"{e.json_path}: {e.message[:300]}" for e in self.validator(schema).iter_errors(value)]

    def members(self, schema, value, at, found):
        """Adds each documented member that VALUE has: `session.enforcement.level`."""
        name, schema = self.resolve(schema)
        at = name or at
        for some in ("oneOf", "anyOf"):
            for i, one in enumerate(schema.get(some, ())):
                if not self.faults(one, value):
                    self.members(one, value, f"{at}|{i}", found)
        for one in schema.get("allOf", ()):
            self.members(one, value, at, found)
        if isinstance(value, dict):
            for key, inner in schema.get("properties", {}).items():
                if key in value:
                    found.add(f"{at}.{key}")
                    self.members(inner, value[key], f"{at}.{key}", found)
            more = schema.get("additionalProperties")
            if isinstance(more, dict):
                for key in value.keys() - schema.get("properties", {}).keys():
                    self.members(more, value[key], f"{at}.*", found)
        elif isinstance(value, list) and "items" in schema:
            for item in value:
                self.members(schema["items"], item, at + "[]", found)

    def documented(self):
        """Each member that the document knows, by the names of members()."""
        found, seen = set(), set()

        def walk(schema, at):
            name, schema = self.resolve(schema)
            if name:
                if name in seen:
                    return
                seen.add(name)
                at = name
            for some in ("oneOf", "anyOf"):
                for i, one in enumerate(schema.get(some, ())):
                    walk(one, f"{at}|{i}")
            for one in schema.get("allOf", ()):
                walk(one, at)
            for key, inner in schema.get("properties", {}).items():
                found.add(f"{at}.{key}")
                walk(inner, f"{at}.{key}")
            if isinstance(schema.get("additionalProperties"), dict):
                walk(schema["additionalProperties"], at + ".*")
            if "items" in schema:
                walk(schema["items"], at + "[]")

        for m, _, path, op in self.operations:
            for schema, at in self.schemas_of(f"{m} {path}", op):
                walk(schema, at)
        return found

    @staticmethod
    def schemas_of(name, op):
        for kind, media in op.get("requestBody", {}).get("content", {}).items():
            yield media["schema"], f"{name} takes"
        for status, answer in op["responses"].items():
            for kind, media in answer.get("content", {}).items():
                yield media["schema"], f"{name} {status}"


class Judge:
    """Checks exchanges as they come and writes them down."""

    def __init__(self):
        with open(SOURCE + "/schema/openapi.json") as f:
            self.contract = Contract(json.load(f))
        self.seen = set()
        self.out = None
        folder = os.environ.get("CORDON_RECORD")
        if folder:
            os.makedirs(folder, exist_ok=True)
            name = os.path.splitext(os.path.basename(sys.argv[0]))[0]
            self.out = open(os.path.join(folder, name + ".jsonl"), "w")

    def exchange(self, method, target, sent, kind_sent, via, answer):
        """METHOD and TARGET None: not a request that can be read, only its answer is judged."""
        name, op = self.contract.find(method, target) if method else (None, None)
        faults, members = [], set()
        kind = answer.kind
        if method is None and answer.status == 400 and b"<title>Request malfor" in answer.body:
            return  # not HTTP at all: the library's own words
        if op is None:
            if answer.status < 300 and method != "OPTIONS":
                faults.append("an answer to what is not documented")
            elif kind == "application/problem+json" and answer.body:
                problem = {"$ref": "#/components/schemas/problem"}
                faults += self.contract.faults(self.contract.spec["components"]["schemas"]["problem"],
                                               answer.json)
                self.contract.members(problem, answer.json, "", members)
        else:
            self.of_operation(name, op, method, target, sent, kind_sent, answer, faults, members)
        if answer.status >= 400 and method != "HEAD":
            if kind != "application/problem+json":
                faults.append(f"status {answer.status} is no problem document but {kind!r}")
            elif answer.json["status"] != answer.status:
                faults.append("the problem has another status")
            elif answer.json["instance"] != answer.headers.get("X-Request-Id"):
                faults.append("instance is not X-Request-Id")
        if answer.headers.get("Cache-Control") != "no-store":
            faults.append("no Cache-Control: no-store")
        faults += [f"{h}: there is no CORS here" for h in answer.headers if h.lower().startswith("access-control")]
        self.write(name, method, target, via, answer, members)
        assert not faults, (method, target, answer.status, kind, faults, answer.body[:600])

    def frame(self, item, name="frame"):
        """One frame, or one of another schema, of a stream that is read as it comes."""
        schema, members = {"$ref": "#/components/schemas/" + name}, set()
        self.contract.members(schema, item, "", members)
        faults = self.contract.faults(schema, item)
        if self.out and members - self.seen:
            self.out.write(json.dumps({"op": None, "code": None, "members": sorted(members - self.seen)}) + "\n")
            self.out.flush()
            self.seen |= members
        assert not faults, (item, faults)

    def of_operation(self, name, op, method, target, sent, kind_sent, answer, faults, members):
        responses, contract = op["responses"], self.contract
        status = str(answer.status)
        if status not in responses and answer.status < 400:
            faults.append(f"status {status} is not documented")
            return
        members.add(f"{name} -> {status if status in responses else 'default'}")
        content = responses.get(status, responses["default"]).get("content", {})
        if answer.body and answer.kind not in content:
            faults.append(f"type {answer.kind!r} is not documented, only {list(content)}")
        elif answer.body and content:
            schema = content[answer.kind]["schema"]
            members.add(f"{name} -> {status if status in responses else 'default'} {answer.kind}")
            if answer.kind.endswith("json") and answer.kind != "application/x-ndjson":
                faults += contract.faults(schema, answer.json)
                contract.members(schema, answer.json, f"{name} {status}", members)
        if answer.kind in ("application/x-ndjson", "text/event-stream"):
            frame = {"$ref": "#/components/schemas/" + ("event" if name == "GET /v1/events" else "frame")}
            for item in answer.frames():
                faults += contract.faults(frame, item)
                contract.members(frame, item, "", members)
        if answer.status < 300:
            self.of_request(name, op, method, target, sent, kind_sent, faults, members)

    def of_request(self, name, op, method, target, sent, kind_sent, faults, members):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(target).query, keep_blank_values=True)
        known = {p["name"]: p for p in op.get("parameters", ()) if p["in"] == "query"}
        for key, values in query.items():
            if key not in known:
                faults.append(f"?{key} was taken and is not documented")
                continue
            members.add(f"{name} ?{key}")
            value = values[0]
            if known[key]["schema"].get("type") == "integer" and value.isdigit():
                value = int(value)
            faults += contract_faults(self.contract, known[key]["schema"], value, "?" + key)
        content = op.get("requestBody", {}).get("content", {})
        if not sent or not kind_sent:
            return
        if kind_sent not in content:
            faults.append(f"a body of type {kind_sent!r} was taken and is not documented")
        elif kind_sent.endswith("json"):
            value = json.loads(sent)
            faults += contract_faults(self.contract, content[kind_sent]["schema"], value, "body")
            self.contract.members(content[kind_sent]["schema"], value, f"{name} takes", members)

    def write(self, name, method, target, via, answer, members):
        if not self.out:
            return
        is_problem = answer.kind == "application/problem+json" and answer.body
        code = answer.json["code"] if is_problem else None
        row = {"op": name, "method": method, "target": (target or "")[:300], "via": via,
               "status": answer.status, "type": answer.kind, "code": code}
        new = members - self.seen
        if new:
            self.seen |= new
            row["members"] = sorted(new)
        self.out.write(json.dumps(row) + "\n")
        self.out.flush()


def contract_faults(contract, schema, value, where):
    return [f"{where} was taken: {fault}" for fault in contract.faults(schema, value)]


_judge = None


def judge():
    global _judge
    if _judge is None:
        _judge = Judge()
    return _judge
