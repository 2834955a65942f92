#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Random policies and requests through lib/policy and through policy_naive: policy_campaign.py POLICY_PIPE REQUESTS [SEED].

Both must give the same level, the same granted set, the same applying rules, and the same explanations to the letter.  What lib/policy refuses as
useless, conflicting or contradictory is proven to be so on the requests, and then left out.
"""
import json
import random
import re
import subprocess
import sys

import policy_naive

ROLES, GROUPS, NAMES = ["miner", "collaborator", "contractor", "public"], ["P1", "P2", "staff"], ["ttt", "sdss", "O'Brien"]
TIMES = ["2027-01-01T00:00:00Z", "2027-01-01T01:00:00+01:00", "2026-12-31T23:59:59Z", "2027-01-01T00:00:01Z", "2028-02-29T12:00:00Z",
         "2028-02-29T12:00:00.000001Z", "2028-02-28T12:00:00Z", "2028-03-01T00:30:00+12:30", "1969-12-31T23:59:59.5Z", "9990-12-31T23:59:59Z",
         "2026-12-31T18:59:59.999999-05:00"]
NUMBERS = ["0", "1", "100", "300.5", "1e3", "-5", "0.1"]
DURATIONS = ["1d", "365d", "1s", "90min", "2w", "36h"]
TEXT_ATTRIBUTES = ["user.id", "user.affiliation", "data.collection", "data.proposal_id", "vm.measurement", "env.zone", "data.OBJECT", "data.FILTER"]
TIME_ATTRIBUTES = ["data.release_date", "data.window_begin", "data.window_end", "data.DATE-OBS", "data.DATE", "now()"]
NUMBER_ATTRIBUTES = ["user.authentication", "data.EXPTIME", "data.NAXIS1"]
BOOLEANS = ["data.PUBLIC", "data.GOOD", "data.embargo_active"]
REFUSED = re.compile(r"p:(\d+):(\d+): rule (\d+) (can never apply|is useless: rule (\d+)|conflicts with rule (\d+))")


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.complete = False

    def pick(self, things):
        return self.random.choice(things)

    def chance(self, share):
        return self.random.random() < share

    def quoted(self, text):
        if self.chance(.3):
            return '"' + text.replace('"', '""') + '"'
        return "'" + text.replace("'", "''") + "'"

    def value(self, attribute):
        if attribute in ("data.proposal_id", "user.id"):
            return self.pick(GROUPS + ["public"])
        return self.pick(NAMES)

    def time(self):
        attribute = self.pick(TIME_ATTRIBUTES)
        return attribute + (f" {self.pick('+-')} {self.pick(DURATIONS)}" if self.chance(.25) else "")

    def in_word(self):
        return self.pick(["in", "IN"])

    def set(self, things):
        return "{" + ", ".join(self.quoted(thing) for thing in self.random.choices(things, k=self.random.randint(1, 3))) + "}"

    def comparison(self):
        kind = self.random.randrange(11)
        sign, order = self.pick(["==", "!="]), self.pick(["<", "<=", ">", ">="])
        if kind <= 1:
            word, things = self.pick([("user.role", ROLES), ("user.roles", ROLES), ("user.group", GROUPS)])
            sides = [word, self.quoted(self.pick(things))]
            if self.chance(.3):
                sides.reverse()
            return self.pick([f" {sign} ".join(sides), f"{sides[0]} {sign} {sides[1]}", f"{self.quoted(self.pick(things))} {self.in_word()} {word}",
                              f"{word} {self.in_word()} {self.set(things)}"])
        if kind == 2:
            attribute = self.pick(TEXT_ATTRIBUTES)
            return self.pick([f"{attribute} {sign} {self.quoted(self.value(attribute))}", f"{self.quoted(self.value(attribute))} {sign} {attribute}",
                              f"{attribute} {self.in_word()} {self.set([self.value(attribute), self.value(attribute)])}"])
        if kind == 3:
            one, other = self.random.sample(["user.affiliation", "data.proposal_id", "data.collection", "env.zone"], 2)
            return f"{one} {sign} {other}"
        if kind == 4:
            return f"{self.pick(['data.proposal_id', 'user.id', 'data.OBJECT'])} {self.in_word()} {self.pick(['user.groups', 'user.roles'])}"
        if kind in (5, 6):
            for _ in range(20):
                sides = [self.time(), self.time() if self.chance(.6) else self.pick(TIMES)]
                names = [side.split(" ")[0] for side in sides]
                if names[0] != names[1] and set(names) != {"data.DATE", "data.DATE-OBS"}:  # their types would not be known
                    break
            else:
                sides, names = ["now()", TIMES[0]], ["now()"]
            if self.chance(.5):
                sides.reverse()
            equal = "now()" not in names and self.chance(.2)
            return f" {sign if equal else order} ".join(sides)
        if kind == 7:
            attribute, constant = self.pick(NUMBER_ATTRIBUTES), self.pick(NUMBERS)
            sides = [attribute, constant] if self.chance(.7) else [constant, attribute] if self.chance(.5) else ["user.authentication", "data.EXPTIME"]
            return f" {self.pick([sign, order])} ".join(sides)
        if kind == 8:
            one, other = self.random.sample(BOOLEANS, 2)
            typed = one if one == "data.embargo_active" else f"{one} == true"
            return self.pick([one, f"{one} {sign} {self.pick(['true', 'false'])}", f"({typed} AND {other} == false OR {one} {sign} {other})"])
        if kind == 9:
            return f"exists({self.pick(TEXT_ATTRIBUTES + TIME_ATTRIBUTES[:-1] + BOOLEANS + ['data.ONLY', 'user.role'])})"
        return self.pick(["true", "false", "data.embargo_active == true", "data.release_date < now()"])

    def condition(self, depth):
        if depth == 0 or self.chance(.35):
            return self.comparison()
        shape = self.random.randrange(5)
        if shape == 0:
            return f"{self.pick(['NOT', 'not'])} {self.condition(depth - 1)}" if self.chance(.5) else f"NOT ({self.condition(depth - 1)})"
        if shape == 1:
            return f"({self.condition(depth - 1)})"
        return f"{self.condition(depth - 1)}{self.pick([' ', chr(10) + '    '])}{self.pick(['AND', 'and', 'OR', 'or'])} {self.condition(depth - 1)}"

    def rule(self):
        allow = self.chance(.65)
        words = ["allow" if allow else "deny"]
        if self.chance(.7):
            words.append(self.pick(["access", "metadata-only", "pixels-only"] + (["full"] if allow else [])))
        parts = [self.chance(.5), self.chance(.4), self.chance(.7)]
        if parts[0]:
            kind, things = self.pick([("role", ROLES), ("role", ROLES), ("group", GROUPS), ("user", GROUPS)])
            words.append(f"{kind}:{self.pick(things)}")
        if parts[1]:
            name = self.pick(NAMES)
            words.append(f"on {self.pick(['collection', 'fileset'])}:{name if name.isalnum() and self.chance(.7) else self.quoted(name)}")
        if parts[2] or not any(parts):
            words.append(f"if {self.condition(self.random.randint(0, 3))}")
        return " ".join(words) + self.pick(["\n", "\n\n", "  # because: it's so\n", "\n# allow everything\n"])

    def maybe(self, make, share=.75):
        return make() if self.complete or self.chance(share) else None

    def request(self):
        self.complete = self.chance(.25)  # nothing is missing
        text = {name: self.maybe(lambda name=name: self.value(name)) for name in TEXT_ATTRIBUTES}
        user = {"id": text["user.id"], "affiliation": text["user.affiliation"],
                self.pick(["role", "roles"]): self.maybe(lambda: self.random.sample(ROLES, self.random.randint(0, 3)), .9),
                "groups": self.maybe(lambda: self.random.sample(GROUPS + ["public"], self.random.randint(0, 3)), .9),
                "authentication": self.maybe(lambda: self.random.randint(0, 3))}
        data = {name.split(".")[1]: value for name, value in text.items() if name.startswith("data.")}
        for name in TIME_ATTRIBUTES[:-1]:
            data[name.split(".")[1]] = self.maybe(lambda: self.pick(TIMES))
        data["EXPTIME"] = self.maybe(lambda: self.pick([0, 1, 100, 300.5, 1000, 0.1, "long", True]))
        data["NAXIS1"] = self.maybe(lambda: self.pick([1, 100, 1000]))
        data["PUBLIC"], data["GOOD"] = (self.maybe(lambda: self.pick([True, False, 1])) for _ in range(2))
        data["ONLY"] = self.maybe(lambda: self.pick([0, "x", False]), .5)
        data["fileset"] = self.maybe(lambda: self.pick(NAMES))
        request = {"user": user, "data": data, "vm": {"measurement": text["vm.measurement"]}, "env": {"zone": text["env.zone"]},
                   "now": self.pick(TIMES)}
        if self.chance(.5):
            request["want"] = self.pick(policy_naive.ORDER)
        return request


class Campaign:
    def __init__(self, pipe, seed):
        self.pipe = subprocess.Popen([pipe], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.generator = Generator(seed)
        self.counts = dict.fromkeys(["policies", "requests", "denied", "metadata-only", "pixels-only", "full", "deny", "default", "never", "useless",
                                     "conflict", "next", "changes", "unknown"], 0)

    def ask(self, text, requests):
        self.pipe.stdin.write(json.dumps({"policy": text, "requests": requests}) + "\n")
        self.pipe.stdin.flush()
        return json.loads(self.pipe.stdout.readline())

    def prove_refusal(self, match, rules, requests):
        """What check.c says about a rule must be so."""
        number, other = int(match[3]), int(match[5] or match[6] or 0)
        policy = policy_naive.Policy("".join(rules))
        assert policy.rules[number - 1].line == int(match[1])
        for request in requests:
            truths = policy.truths(request)
            rule = policy.rules[number - 1]
            if match[4] == "can never apply":
                assert policy.truth(rule.root, truths) is not True
            elif policy.applies(rule, truths):
                assert policy.applies(policy.rules[other - 1], truths)
            if match[4].startswith("conflicts"):
                assert rule.allow and not policy.rules[other - 1].allow and rule.level in policy.rules[other - 1].levels()
            if match[4].startswith("is useless"):
                policy.rules.pop(number - 1)
                assert policy.granted(truths) == policy.granted(policy.truths(request))
                policy.rules.insert(number - 1, rule)
        self.counts["never" if "never" in match[4] else "useless" if "useless" in match[4] else "conflict"] += 1

    def run(self, requests_of_policy=2):
        rules = [self.generator.rule() for _ in range(self.generator.random.choice([1, 2, 3, 5, 8, 14]))]
        requests = [self.generator.request() for _ in range(requests_of_policy)]
        while True:
            text = "".join(rules)
            found = self.ask(text, requests)
            if "error" not in found:
                break
            match = REFUSED.match(found["error"])
            assert match, (found, text)
            self.prove_refusal(match, rules, requests + [self.generator.request() for _ in range(4)])
            rules.pop(int(match[3]) - 1)
        policy = policy_naive.Policy(text)
        self.counts["policies"] += 1
        for request, answer in zip(requests, found["answers"]):
            self.compare(policy, text, request, answer)

    def compare(self, policy, text, request, answer):
        where = json.dumps(request) + "\n" + text
        wanted = policy.decide(request)
        granted = "metadata-only, pixels-only" if wanted["granted"] == {"metadata-only", "pixels-only"} else policy.answer(wanted["granted"], None)
        assert (answer["level"], answer["granted"], answer["applied"]) == (wanted["level"], granted, wanted["applied"]), (answer, wanted, where)
        for reader in ("officer", "user"):
            explanation = policy.explain(request, reader)
            assert answer[reader] == explanation, f"{reader}\nlib:   {json.dumps(answer[reader])}\nnaive: {json.dumps(explanation)}\n{where}"
        officer = answer["officer"]
        self.counts["requests"] += 1
        self.counts[answer["level"]] += 1
        if officer["because"] != "allow":
            self.counts[officer["because"]] += 1
        self.counts["next"] += "next" in officer
        self.counts["changes"] += bool(officer.get("changes"))
        self.counts["unknown"] += any(condition["value"] == "unknown" for rule in officer["rules"] for condition in rule["conditions"])

    def close(self):
        self.pipe.stdin.close()
        assert self.pipe.wait() == 0


def run(pipe, requests, seed):
    campaign = Campaign(pipe, seed)
    while campaign.counts["requests"] < requests:
        campaign.run()
    campaign.close()
    assert all(count > 0 for count in campaign.counts.values()), campaign.counts  # every outcome was seen
    return campaign.counts


if __name__ == "__main__":
    print(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1))
