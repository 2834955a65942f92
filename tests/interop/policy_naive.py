# SPDX-License-Identifier: Apache-2.0
"""A second evaluator of policies, written from docs/formats/policy.md alone: slow, plain, nothing shared with lib/policy.

Policy(text) parses; .decide(request) gives the answer, .explain(request, "officer" or "user") the whole explanation.  It doesn't check what is
refused when a policy is loaded.
"""
import datetime
import re

FIXED = ["user.id", "user.role", "user.group", "user.affiliation", "user.authentication", "data.collection", "data.fileset",
         "data.release_date", "data.proposal_id", "data.window_begin", "data.window_end", "vm.protection", "vm.measurement", "env.zone"]
OTHER_NAMES = {"user.roles": "user.role", "user.groups": "user.group"}
TYPES = dict.fromkeys(FIXED, str) | {"user.role": set, "user.group": set, "user.authentication": float, "data.release_date": "time",
                                     "data.window_begin": "time", "data.window_end": "time"}
HIDDEN = {"user.id", "vm.measurement"}
GIVES = {"full": {"full", "metadata-only", "pixels-only"}, "metadata-only": {"metadata-only"}, "pixels-only": {"pixels-only"}}
TAKES = {"full": GIVES["full"], "metadata-only": {"metadata-only", "full"}, "pixels-only": {"pixels-only", "full"}}
ORDER = ["full", "metadata-only", "pixels-only"]
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
EPOCH = datetime.datetime(1970, 1, 1)
MICROSECOND = datetime.timedelta(microseconds=1)

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)"
WORDS = re.compile(rf"""
    (?P<blank>[ \t\r\n]+|\#[^\n]*) | (?P<string>'(?:[^']|'')*'|"(?:[^"]|"")*") | (?P<time>{TIME}) | (?P<duration>\d+(?:min|[shdw])(?![\w.-])) |
    (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?) | (?P<word>[A-Za-z_][\w.-]*) | (?P<sign>==|!=|<=|>=|[<>(){{}},:+-])""", re.X | re.A)


def parse_time(text):
    match = re.fullmatch(r"(.{19})(\.\d+)?(?:Z|([+-])(\d\d):(\d\d))", text)
    moment = (datetime.datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S") - EPOCH) // MICROSECOND
    if match[2]:
        moment += int(match[2][1:].ljust(6, "0"))
    if match[3]:
        moment -= (1 if match[3] == "+" else -1) * (int(match[4]) * 60 + int(match[5])) * 60_000_000
    return moment


def time_text(moment):
    when = EPOCH + moment * MICROSECOND
    return when.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + (f".{when.microsecond:06}" if when.microsecond else "") + "Z"


def duration_text(microseconds):
    seconds = abs(microseconds) // 1_000_000
    if seconds == 0:
        return ""
    unit = next(name for name in ("d", "h", "min", "s") if seconds % SECONDS[name] == 0)
    return f" {'-' if microseconds < 0 else '+'} {seconds // SECONDS[unit]}{unit}"


def number_text(number):
    if abs(number) < 1e15 and number == int(number):
        return str(int(number))
    return next(text for text in ("%.*g" % (digits, number) for digits in range(1, 18)) if float(text) == number)


class Attribute:
    def __init__(self, name, offset=0):
        self.name, self.offset = name, offset


class Condition(tuple):
    """(kind, left attribute, right, offset): right is a constant or the name of an attribute."""

    def text(self, wanted=True):
        kind, left, right, offset = self
        if kind == "exists":
            return f"{'' if wanted else 'NOT '}exists({left})"
        if kind == "boolean":
            return f"{left} {'==' if wanted else '!='} true"
        base, between = kind.split()
        sign = {"equal": ("==", "!="), "below": ("<", ">="), "above": (">", "<="), "in": ("in", "in")}[base][not wanted]
        if between == "attributes":
            shown = right
        elif between == "set":
            shown = "{" + ", ".join(quoted(item) for item in sorted(right, key=str.encode)) + "}"
        else:
            shown = quoted(right) if between == "string" else time_text(right) if between == "time" else number_text(right)
        return f"{'NOT ' if base == 'in' and not wanted else ''}{left}{duration_text(offset)} {sign} {shown}"

    def attributes(self):
        return [self[1]] + ([self[2]] if self[0].endswith("attributes") else [])


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def both(left, right):
    if left is False or right is False:
        return False
    return right if left is True or left == right else left if right is True else ("and", left, right)


def either(left, right):
    if left is True or right is True:
        return True
    return right if left is False or left == right else left if right is False else ("or", left, right)


def negated(node):
    if isinstance(node, bool):
        return not node
    return node[1] if node[0] == "not" else ("not", node)


EMBARGO = Condition(("below attributes", "now()", "data.release_date", 0))


class Rule:
    def __init__(self, allow, level, line, start):
        self.allow, self.level, self.line, self.start, self.root = allow, level, line, start, True

    def levels(self):
        return (GIVES if self.allow else TAKES)[self.level]


class Policy:
    def __init__(self, text):
        self.source, self.types, self.keywords = text, dict(TYPES), []
        self.words = [(m.lastgroup, m.group(), m.start(), m.end()) for m in WORDS.finditer(text) if m.lastgroup != "blank"]
        self.words.append(("end", "", len(text), len(text)))
        self.at, self.rules = 0, []
        while self.peek()[0] != "end":
            self.rules.append(self.rule())

    # --- parsing

    def peek(self):
        return self.words[self.at]

    def take(self, *expected):
        word = self.words[self.at]
        assert not expected or word[1] in expected, (expected, word)
        self.at += 1
        return word

    def follows(self, *words):
        return self.peek()[0] in ("word", "sign") and self.peek()[1] in words

    def rule(self):
        _, effect, start, _ = self.take("allow", "deny")
        rule = Rule(effect == "allow", "full", self.source.count("\n", 0, start) + 1, start)
        if self.follows("access", "full", "metadata-only", "pixels-only"):
            level = self.take()[1]
            rule.level = "full" if level == "access" else level
        if self.follows("role", "group", "user"):
            rule.root = both(rule.root, self.selector({"role": "user.role", "group": "user.group", "user": "user.id"}))
        if self.follows("on"):
            self.take()
            rule.root = both(rule.root, self.selector({"collection": "data.collection", "fileset": "data.fileset"}))
        if self.follows("if"):
            self.take()
            rule.root = both(rule.root, self.disjunction())
        rule.text = self.source[start:self.words[self.at - 1][3]]
        return rule

    def string(self, word):
        return word[1][1:-1].replace(word[1][0] * 2, word[1][0]) if word[0] == "string" else word[1]

    def selector(self, names):
        name = names[self.take()[1]]
        self.take(":")
        return self.equal(Attribute(name), self.string(self.take()))

    def disjunction(self):
        node = self.conjunction()
        while self.follows("OR", "or"):
            self.take()
            node = either(node, self.conjunction())
        return node

    def conjunction(self):
        node = self.factor()
        while self.follows("AND", "and"):
            self.take()
            node = both(node, self.factor())
        return node

    def factor(self):
        if self.follows("NOT", "not"):
            self.take()
            return negated(self.factor())
        if self.follows("("):
            self.take()
            node = self.disjunction()
            self.take(")")
            return node
        return self.comparison()

    def comparison(self):
        if self.follows("exists"):
            self.take()
            self.take("(")
            name = self.attribute(self.take()[1]).name
            self.take(")")
            return Condition(("exists", "data.release_date" if name == "data.embargo_active" else name, None, 0))
        left = self.operand()
        if not self.follows("==", "!=", "<", "<=", ">", ">=", "in", "IN"):
            return self.boolean(left)
        sign = self.take()[1]
        right = self.operand()
        self.agree(left, right, sign)
        if sign in ("in", "IN"):
            return self.member(left, right)
        if sign in (">", "<="):
            left, right = right, left
        node = self.equal(left, right) if sign in ("==", "!=") else self.below(left, right)
        return node if sign in ("==", "<", ">") else negated(node)

    def attribute(self, word):
        name = OTHER_NAMES.get(word, word)
        if name not in FIXED and name != "data.embargo_active" and name not in self.keywords:
            self.keywords.append(name)
        return Attribute(name)

    def operand(self):
        kind, text, _, _ = word = self.take()
        if kind == "string":
            return self.string(word)
        if kind == "number":
            return float(text)
        if text == "-":
            return 0.0 - float(self.take()[1])
        if kind == "time":
            return parse_time(text)
        if text == "{":
            items = []
            while not self.follows("}"):
                items.append(self.string(self.take()))
                if self.follows(","):
                    self.take()
            self.take("}")
            return frozenset(items)
        if text in ("true", "false"):
            return text == "true"
        if text == "now":
            self.take("(")
            self.take(")")
            value = Attribute("now()")
        else:
            value = self.attribute(text)
        if self.follows("+", "-"):
            sign = 1 if self.take()[1] == "+" else -1
            match = re.fullmatch(r"(\d+)(\w+)", self.take()[1], re.A)
            value.offset = sign * int(match[1]) * SECONDS[match[2]] * 1_000_000
            self.types.setdefault(value.name, "time")
        return value

    # --- types and conditions

    def type_of(self, value):
        if isinstance(value, Attribute):
            return {"now()": "time", "data.embargo_active": bool}.get(value.name) or self.types.get(value.name)
        return {str: str, float: float, bool: bool, int: "time", frozenset: set}[type(value)]

    def agree(self, left, right, sign):
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Attribute) and self.type_of(one) is None:
                self.types[one.name] = str if sign in ("in", "IN") or self.type_of(other) is set else self.type_of(other)

    def boolean(self, value):
        if isinstance(value, bool):
            return value
        if value.name == "data.embargo_active":
            return EMBARGO
        self.types.setdefault(value.name, bool)
        return Condition(("boolean", value.name, None, 0))

    def position(self, name):
        return (FIXED + self.keywords).index(name)

    def equal(self, left, right):
        if not isinstance(left, Attribute):
            left, right = right, left
        kind = self.type_of(left)
        if kind is bool:
            one, other = self.boolean(left), self.boolean(right)
            if isinstance(other, bool):
                return one if other else negated(one)
            return either(both(one, other), both(negated(one), negated(other)))
        if isinstance(right, Attribute):
            if kind is str and self.position(right.name) < self.position(left.name):
                left, right = right, left
            return Condition(("equal attributes", left.name, right.name, left.offset - right.offset))
        if kind is set:
            return True if (left.name, right) == ("user.role", "public") else Condition(("equal string", left.name, right, 0))
        if kind == "time":
            return Condition(("equal time", left.name, right - left.offset, 0))
        return Condition(("equal string" if kind is str else "equal number", left.name, right, 0))

    def below(self, left, right):
        if isinstance(left, Attribute) and isinstance(right, Attribute):
            return Condition(("below attributes", left.name, right.name, left.offset - right.offset))
        attribute, constant, kind = (left, right, "below") if isinstance(left, Attribute) else (right, left, "above")
        if isinstance(constant, int):
            return Condition((f"{kind} time", attribute.name, constant - attribute.offset, 0))
        return Condition((f"{kind} number", attribute.name, constant, 0))

    def member(self, left, right):
        if isinstance(left, str):
            return self.equal(right, left)
        if isinstance(right, Attribute):
            return Condition(("in attributes", left.name, right.name, 0))
        if left.name == "user.role" and "public" in right:
            return True
        return Condition(("in set", left.name, right, 0))

    # --- evaluation

    def value(self, request, name):
        """None: missing."""
        if name == "now()":
            return parse_time(request["now"])
        space, word = name.split(".", 1)
        given = request.get(space, {})
        value = given.get(word, given.get(word + "s") if name in ("user.role", "user.group") else None)
        kind = self.types.get(name)
        if value is None:
            return None
        if kind is None:
            return value
        if kind is set:
            return set(value)
        if kind == "time":
            return parse_time(value) if isinstance(value, str) else None
        if kind is float:
            return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
        return value if isinstance(value, kind) else None

    def truth_of(self, condition, request):
        kind, left, right, offset = condition
        value = self.value(request, left)
        if kind == "exists":
            return value is not None
        if kind == "in attributes" and right == "user.role" and value == "public":
            return True
        if kind.endswith("attributes"):
            right = self.value(request, right)
        if value is None or right is None and kind != "boolean":
            return None
        if kind == "boolean":
            return value
        base, between = kind.split()
        if isinstance(value, set):
            return bool(value & right) if base == "in" else right in value
        if base == "in":
            return value in right
        if between == "attributes" and isinstance(value, int):
            value += offset
        return value == right if base == "equal" else value < right if base == "below" else right < value

    def truth(self, node, truths):
        if isinstance(node, bool):
            return node
        if isinstance(node, Condition):
            return truths[node]
        if node[0] == "not":
            inner = self.truth(node[1], truths)
            return None if inner is None else not inner
        sides = [self.truth(side, truths) for side in node[1:]]
        if node[0] == "and":
            return False if False in sides else None if None in sides else True
        return True if True in sides else None if None in sides else False

    def conditions(self, node):
        if isinstance(node, Condition):
            return [node]
        return [] if isinstance(node, bool) else [found for side in node[1:] for found in self.conditions(side)]

    def truths(self, request):
        return {condition: self.truth_of(condition, request) for rule in self.rules for condition in self.conditions(rule.root)}

    def applies(self, rule, truths):
        truth = self.truth(rule.root, truths)
        return truth is True if rule.allow else truth is not False

    def granted(self, truths):
        given, taken = set(), set()
        for rule in self.rules:
            if self.applies(rule, truths):
                (given if rule.allow else taken).update(rule.levels())
        return given - taken

    def answer(self, granted, want):
        if want:
            return want if want in granted else "denied"
        return next((level for level in ORDER if level in granted), "denied")

    def decide(self, request):
        truths = self.truths(request)
        granted = self.granted(truths)
        return {"level": self.answer(granted, request.get("want")), "granted": granted,
                "applied": [number for number, rule in enumerate(self.rules, 1) if self.applies(rule, truths)]}

    # --- explanation

    def moment(self, condition, request):
        """When time changes the condition, and to what; None if it doesn't."""
        kind, left, right, offset = condition
        if "now()" not in condition.attributes():
            return None
        if kind == "below time":
            return right, False
        if kind == "above time":
            return right + 1, True
        other = self.value(request, right if left == "now()" else left)
        if other is None:
            return None
        return (other - offset, False) if left == "now()" else (other + offset + 1, True)

    def deciding(self, truths, level, want):
        for number, rule in enumerate(self.rules, 1):
            if self.applies(rule, truths):
                wanted = {want} if want else set(ORDER)
                if rule.allow and level in rule.levels() or not rule.allow and level == "denied" and rule.levels() & wanted:
                    yield number, rule

    def next(self, request, level, seen):
        now, want = parse_time(request["now"]), request.get("want")
        moments = {}
        for condition in self.truths(request):
            found = self.moment(condition, request)
            if found and found[0] > now:
                moments[found[0]] = moments.get(found[0], False) or seen(condition)
        for at in sorted(moments)[:256]:
            truths = self.truths(dict(request, now=time_text(at)))
            later = self.answer(self.granted(truths), want)
            if later != level:
                return {"at": time_text(at), "level": later,
                        "rules": [number for number, _ in self.deciding(truths, later, want)]} if moments[at] else None
        return None

    def needs(self, node, wanted, truths):
        """Conditions that must change, with what they must become, as they occur; None: impossible."""
        if isinstance(node, bool):
            return [] if node == wanted else None
        if isinstance(node, Condition):
            return [] if truths[node] is wanted else [(node, wanted)]
        if node[0] == "not":
            return self.needs(node[1], not wanted, truths)
        left, right = (self.needs(side, wanted, truths) for side in node[1:])
        if (node[0] == "and") == wanted:
            return left + right
        return left if len(left) <= len(right) else right

    def way(self, rule, request, truths):
        target = request.get("want") or rule.level
        if not rule.allow or target not in rule.levels():
            return None
        parts = [self.needs(rule.root, True, truths)]
        parts += [self.needs(deny.root, False, truths) for deny in self.rules
                  if not deny.allow and target in deny.levels() and self.applies(deny, truths)]
        changes = {}
        for part in parts:
            if part is None:
                return None
            for condition, wanted in part:
                if changes.setdefault(condition, wanted) != wanted:
                    return None
        for condition, wanted in changes.items():
            found = self.moment(condition, request)
            if found and (found[0] <= parse_time(request["now"]) or found[1] != wanted):
                return None
        return changes

    def changes(self, request, truths, seen):
        ways = [(len(way), number, way) for number, way in
                ((number, self.way(rule, request, truths)) for number, rule in enumerate(self.rules, 1)) if way is not None]
        found = []
        for _, number, way in sorted(ways, key=lambda way: way[:2])[:64]:
            rule = self.rules[number - 1]
            target, supposed = request.get("want") or rule.level, dict(truths, **{}) | way
            denied = any(not deny.allow and target in deny.levels() and self.applies(deny, supposed) for deny in self.rules)
            if denied or not self.applies(rule, supposed) or not any(map(seen, way)):
                continue
            shown = []
            for condition, wanted in way.items():
                if not seen(condition):
                    shown.append({"condition": "not shown"})
                    continue
                entry = {"condition": condition.text(wanted), "now": "unknown" if truths[condition] is None else "false"}
                moment = self.moment(condition, request)
                shown.append(entry | ({"at": time_text(moment[0])} if moment else {}))
            found.append({"rule": number, "level": target, "conditions": shown})
        return found[:8]

    def explain(self, request, reader):
        truths = self.truths(request)
        granted = self.granted(truths)
        level = self.answer(granted, request.get("want"))
        if reader == "user" and (not request.get("user", {}).get("id") or request["user"].get("authentication") == 0):
            return {"level": level}

        def seen(condition):
            def is_open(name):
                return name not in HIDDEN and (name in FIXED or name == "now()" or "metadata-only" in granted)
            return reader == "officer" or all(map(is_open, condition.attributes()))

        rules = []
        for number, rule in self.deciding(truths, level, request.get("want")):
            entry = {"rule": number, "effect": "allow" if rule.allow else "deny", "level": rule.level,
                     "certain": self.truth(rule.root, truths) is True,
                     "conditions": [{"condition": condition.text(), "value": {True: "true", False: "false", None: "unknown"}[truths[condition]]}
                                    for condition in dict.fromkeys(self.conditions(rule.root)) if seen(condition)]}
            rules.append(entry | ({"line": rule.line, "text": rule.text} if reader == "officer" else {}))
        result = {"level": level, "granted": [name for name in ORDER if name in granted], "time": time_text(parse_time(request["now"])),
                  "because": "allow" if level != "denied" else "deny" if rules else "default", "rules": rules}
        if request.get("want"):
            result["want"] = request["want"]
        later = self.next(request, level, seen)
        if later:
            result["next"] = later
        if level == "denied":
            result["changes"] = self.changes(request, truths, seen)
        return result
