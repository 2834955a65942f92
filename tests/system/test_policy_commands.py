# SPDX-License-Identifier: Apache-2.0
"""naos policy check, test, explain, diff; policies in the configuration."""
import json
import re

import pytest

from conftest import SOURCE

POLICY = """# Policy of the collection ttt.
allow role:public if data.release_date < now()
allow metadata-only role:miner on collection:ttt
allow access if (user.role == 'collaborator' AND data.embargo_active == true)
deny role:contractor if user.authentication < 2
"""
FRAME = {"collection": "ttt", "release_date": "2027-01-01T00:00:00Z"}
BEFORE, AT, AFTER = "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z", "2027-01-01T00:00:01Z"


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "ttt.policy"
    path.write_text(POLICY)
    return path


def lines(path, *objects):
    path.write_text("# made by a test\n\n" + "".join(json.dumps(line) + "\n" for line in objects))
    return path


def user(name, *roles, **more):
    return {"user": {"id": name, "roles": list(roles), "authentication": 2} | more}


# --- check

def test_check_counts_rules_and_names_the_place_of_a_mistake(naos, policy):
    assert naos.ok("policy", "check", policy) == f"{policy}: ok, 4 rules\n"
    assert naos.json("policy", "check", policy)[0]["rules"] == 4
    policy.write_text(POLICY + "allow role:x if data.release_date < 2027-01-01T00:00:00\n")
    assert f"{policy}:6:37: the time 2027-01-01T00:00:00 has no zone; add Z" in naos.fails(2, "policy", "check", policy)
    error = json.loads(naos.fails(2, "policy", "check", policy, "--json").splitlines()[0])
    assert error["error"]["name"] == "NAOS_E_CONFIG"
    policy.write_text("")
    assert "no rules: everything is denied" in naos.ok("policy", "check", policy)
    assert "ttt.nowhere" in naos.fails(1, "policy", "check", policy.with_suffix(".nowhere"))


@pytest.mark.parametrize("section", ["collection ttt", "fileset genomes"])
def test_the_configuration_names_policies_and_config_check_loads_them(naos, policy, section):
    naos.config.write_text(f"[{section}]\npolicy = {policy}\n")
    assert "ok" in naos.ok("config", "check")
    assert naos.ok("policy", "check") == f"{policy}: ok, 4 rules\n"
    policy.write_text("allow role:x if user.rol == 'y'\n")
    for words in (["config", "check"], ["policy", "check"]):
        assert f"naos.conf:2: {policy}:1:17: unknown attribute 'user.rol'; did you mean user.role?" in naos.fails(2, *words)
    policy.unlink()
    assert "ttt.policy" in naos.fails(1, "config", "check")
    naos.config.write_text(f"[{section}]\npolicy = ttt.policy\n")
    assert "an absolute path is expected" in naos.fails(2, "config", "check")
    naos.config.write_text("")
    assert "names none" in naos.fails(2, "policy", "check")


# --- test

def cases(policy, *rows):
    return lines(policy.with_suffix(".cases"), *(dict(row, level=level, **({"name": name} if name else {})) for name, level, row in rows))


def test_cases_beside_a_policy_pass_or_are_named(naos, policy):
    good = [("before", "denied", user("a") | {"data": FRAME, "now": BEFORE}),
            ("after", "full", user("a") | {"data": FRAME, "now": AFTER, "rules": [1]}),
            ("a miner", "metadata-only", user("m", "miner") | {"data": FRAME, "now": BEFORE, "rules": [2]}),
            ("no pixels for a miner", "denied", user("m", "miner") | {"data": FRAME, "now": BEFORE, "want": "pixels-only"}),
            (None, "full", user("c", "collaborator") | {"data": FRAME, "now": BEFORE})]
    cases(policy, *good)
    out = naos.ok("policy", "test", policy)
    assert out.endswith("5 cases, 0 failed\n") and "rules that decided no case: 4\n" in out
    path = cases(policy, *good, ("wrong level", "full", user("x") | {"data": FRAME, "now": BEFORE}),
                 ("wrong rule", "full", user("a") | {"data": FRAME, "now": AFTER, "rules": [3]}))
    done = naos("policy", "test", policy)
    assert done.returncode == 1 and "NAOS_E_CHECK" in done.stderr
    assert f"{path}:8: 'wrong level': the level is denied, not full; deciding rules: none\n" in done.stdout
    assert f"{path}:9: 'wrong rule': the level is right, but the rules that decided are 1, not 3\n" in done.stdout
    results = [json.loads(line) for line in naos("policy", "test", policy, path, "--json").stdout.splitlines()]
    assert [row["passed"] for row in results[:-1]] == [True] * 5 + [False] * 2
    assert results[-1] == {"policy": str(policy), "cases": 7, "failed": 2, "idle_rules": [4]}


def test_cases_without_a_time_have_the_one_given(naos, policy):
    cases(policy, (None, "denied", user("a") | {"data": FRAME}))
    naos.ok("policy", "test", policy, "--now", BEFORE)
    naos.fails(1, "policy", "test", policy, "--now", AFTER)
    assert "--now: the time '2027-01-01' is a day" in naos.fails(2, "policy", "test", policy, "--now", "2027-01-01")


@pytest.mark.parametrize("line, message", [
    ("{", ":1: no JSON object on one line"), ("[]", "another value"), ('{"user": {}}', 'a case needs "level"'),
    ('{"level": "all"}', 'a case needs "level"'), ('{"level": "full", "rules": "1"}', '"rules" must be a list'),
    ('{"level": "full", "user": {"idd": "x"}}', ":1: unknown attribute 'user.idd'"), ("# nothing", "holds no case"),
    ('{"level": "full", "level": "denied"}', "duplicate"), ('{"level": "full", "now": "2027-01-01T00:00:00"}', "has no zone"),
])
def test_a_wrong_case_is_an_error_with_its_line(naos, policy, line, message):
    policy.with_suffix(".cases").write_text(line + "\n")
    assert message in naos.fails(4, "policy", "test", policy)


def test_a_line_has_a_limit(naos, policy):
    case = user("a") | {"data": FRAME, "now": AFTER, "level": "full"}
    text = json.dumps(case)
    for length, status in ((1 << 20, 0), ((1 << 20) + 1, 2)):
        policy.with_suffix(".cases").write_text(text + " " * (length - len(text) - 1) + "\n")
        assert naos("policy", "test", policy).returncode == status


# --- explain

def test_a_user_learns_when_it_opens_and_what_is_missing(naos, policy, tmp_path):
    request = lines(tmp_path / "request.json", user("alice") | {"data": FRAME})
    out = naos.ok("policy", "explain", "--now", BEFORE, "--for", "user", policy, request)
    assert out.splitlines() == [
        "denied: no rule allows it",
        "after 2027-01-01T00:00:00Z full by rule 1",
        "rule 1 would allow full, if",
        "    data.release_date < now() (after 2027-01-01T00:00:00Z)",
        "rule 2 would allow metadata-only, if",
        "    user.role == 'miner'",
        "rule 3 would allow full, if",
        "    user.role == 'collaborator'",
    ]
    at = naos.ok("policy", "explain", "--now", AT, policy, request).splitlines()[0]
    assert (at, naos.ok("policy", "explain", "--now", AFTER, policy, request).splitlines()[0]) == ("denied: no rule allows it", "full")


def test_an_officer_sees_the_rule_and_its_conditions(naos, policy, tmp_path):
    request = json.dumps({"user": {"id": "eve", "roles": ["contractor"]}, "data": FRAME, "now": AFTER})
    out = naos.ok("policy", "explain", policy, input=request)
    assert "rule 4 (line 5) denies access, because something that it asks for is not known\n" in out
    assert "    deny role:contractor if user.authentication < 2\n" in out and "    user.authentication < 2: unknown\n" in out


def test_an_outsider_learns_nothing(naos, policy):
    for request in ({"data": FRAME}, {"data": FRAME, "user": {"roles": ["contractor"]}}, user("a", authentication=0) | {"data": FRAME}):
        out = naos.ok("policy", "explain", "--for", "user", "--now", BEFORE, policy, "-", input=json.dumps(request))
        assert out == "denied\n"
    out = naos.ok("policy", "explain", "--for", "outsider", "--json", policy, input=json.dumps(user("a") | {"data": FRAME, "now": BEFORE}))
    assert json.loads(out) == {"level": "denied"}


def test_what_is_wanted_is_answered(naos, policy):
    request = json.dumps(user("m", "miner") | {"data": FRAME, "now": BEFORE})
    assert naos.ok("policy", "explain", policy, input=request).startswith("metadata-only\n")
    assert naos.ok("policy", "explain", "--want", "pixels-only", policy, input=request).startswith("denied (pixels-only was asked for)")
    assert "--want is full" in naos.fails(2, "policy", "explain", "--want", "all", policy, input=request)
    assert "--for is officer" in naos.fails(2, "policy", "explain", "--for", "all", policy, input=request)
    assert "holds no request" in naos.fails(4, "policy", "explain", policy, input="")
    assert "a second request" in naos.fails(4, "policy", "explain", policy, input=request + "\n" + request)


# --- diff

def test_diff_lists_who_gains_and_who_loses(naos, policy, tmp_path):
    new = tmp_path / "new.policy"
    new.write_text(POLICY.replace("metadata-only role:miner", "pixels-only role:miner") + "deny user:bob\nallow metadata-only role:student\n")
    subjects = lines(tmp_path / "users.jsonl", user("alice", "miner"), user("bob", "collaborator"), user("carol", "student"), user("dave"))
    objects = lines(tmp_path / "frames.jsonl", {"name": "m31.fits", "data": FRAME},
                    {"name": "open.fits", "data": FRAME | {"release_date": "2020-01-01T00:00:00Z"}})
    words = ["policy", "diff", "--subjects", subjects, "--objects", objects, "--now", BEFORE, policy, new]
    assert naos.ok(*words).splitlines() == [
        "alice changes on m31.fits: metadata-only -> pixels-only",
        "bob loses on m31.fits: full -> denied",
        "bob loses on open.fits: full -> denied",
        "carol gains on m31.fits: denied -> metadata-only",
        "8 pairs of subject and object: 1 gain, 2 lose, 1 change otherwise",
    ]
    rows = naos.json(*words)
    assert rows[0] == {"subject": "alice", "object": "m31.fits", "old": "metadata-only", "new": "pixels-only", "change": "changes"}
    assert rows[-1] == {"pairs": 8, "gains": 1, "losses": 2, "changes": 1}
    same = naos.ok(*words[:-1], policy)
    assert same == "8 pairs of subject and object: 0 gain, 0 lose, 0 change otherwise\n"


def test_diff_refuses_what_it_does_not_understand(naos, policy, tmp_path):
    subjects, objects = lines(tmp_path / "s", user("a")), lines(tmp_path / "o", {"data": FRAME})
    assert "--subjects FILE --objects FILE" in naos.fails(2, "policy", "diff", policy, policy)
    lines(objects, {"user": {}})
    words = ["policy", "diff", "--subjects", subjects, "--objects", objects, policy, policy]
    assert 'o:3: no member "data"' in naos.fails(4, *words)
    lines(objects, {"data": FRAME, "want": "full"})
    assert '"want" has no meaning here' in naos.fails(4, *words)


# --- documents

def test_the_examples_of_the_documents_are_good_policies(naos, tmp_path):
    page = (SOURCE / "docs/formats/policy.md").read_text()
    manual = (SOURCE / "docs/man/naos-policy.1").read_text()
    blocks = re.findall(r"(?:^    (?:#|allow|deny).*\n)+", page, re.M) + re.findall(r"^# Policy.*(?:\n(?:allow|deny).*)+\n", manual, re.M)
    blocks += [found + "\n" for found in re.findall(r"`((?:allow|deny) [^`]*if [^`]*)`", page)]
    assert len(blocks) >= 3
    for number, block in enumerate(blocks):
        path = tmp_path / f"{number}.policy"
        path.write_text(block)
        naos.ok("policy", "check", path)
    request = re.search(r'^    (\{"user".*\n(?:     .*\n)*)', page, re.M)[1]
    naos.ok("policy", "explain", tmp_path / "0.policy", input=request.replace("\n", " "))
