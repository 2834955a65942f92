/* naos policy diff: who gains or loses what by a new policy.  SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "policy/request.h"
#include "policy_lines.h"

/* Subjects or objects of a file. */
struct list {
	json_t **items;
	char **names;
	size_t count, room;
	const char *space; /* "user", "data" */
};

struct comparison {
	const struct naos_invocation *invocation;
	const struct naos_policy *old, *new;
	int64_t now_us;
	size_t pairs, gains, losses, others;
};

static void clear_list(struct list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		json_decref(list->items[i]);
		free(list->names[i]);
	}
	free(list->items);
	free(list->names);
}

/* "name", else user.id, else the line. */
static char *name_of(const struct list *list, const json_t *object, const char *where)
{
	const char *name = json_string_value(json_object_get(object, "name"));
	if (!name && strcmp(list->space, "user") == 0)
		name = json_string_value(json_object_get(json_object_get(object, "user"), "id"));
	return strdup(name ? name : where);
}

static int take_item(void *context, json_t *object, const char *where, struct naos_error *err)
{
	struct list *list = context;
	if (!json_object_get(object, list->space))
		return naos_error_set(err, NAOS_E_FORMAT, "%s: no member \"%s\" with attributes", where, list->space);
	if (json_object_get(object, "want"))
		return naos_error_set(err, NAOS_E_FORMAT, "%s: \"want\" has no meaning here: all levels are compared", where);
	if (list->count == list->room) {
		size_t room = list->room * 2 + 64;
		json_t **items = reallocarray(list->items, room, sizeof(*items));
		list->items = items ? items : list->items;
		char **names = items ? reallocarray(list->names, room, sizeof(*names)) : NULL;
		list->names = names ? names : list->names;
		if (!names)
			return naos_error_set(err, NAOS_E_NOMEM, "no memory for %s", where);
		list->room = room;
	}
	list->names[list->count] = name_of(list, object, where);
	if (!list->names[list->count])
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for %s", where);
	list->items[list->count++] = json_incref(object);
	return 0;
}

static int granted(const struct comparison *comparison, const struct naos_policy *policy, const struct list *subjects, size_t subject,
		   const struct list *objects, size_t object, unsigned *ret, struct naos_error *err)
{
	naos_autogiven struct naos_policy_given given;
	struct naos_policy_decision decision;
	naos_policy_given_start(&given, comparison->now_us);
	int rc = naos_policy_given_add(&given, policy, subjects->items[subject], subjects->names[subject], err);
	if (rc == 0)
		rc = naos_policy_given_add(&given, policy, objects->items[object], objects->names[object], err);
	if (rc != 0)
		return rc;
	naos_policy_decide(policy, &given.request, &decision);
	*ret = decision.granted;
	return 0;
}

static int report(struct comparison *comparison, const char *subject, const char *object, unsigned old, unsigned new,
		  struct naos_error *err)
{
	const char *kind = (old & ~new) == 0 ? "gains" : (new & ~old) == 0 ? "loses" : "changes";
	comparison->gains += kind[0] == 'g';
	comparison->losses += kind[0] == 'l';
	comparison->others += kind[0] == 'c';
	if (comparison->invocation->json)
		return naos_print_json(json_pack("{s:o, s:o, s:s, s:s, s:s}", "subject", naos_json_text(subject), "object",
						 naos_json_text(object), "old",
						 naos_access_set_name(old), "new", naos_access_set_name(new), "change", kind), err);
	printf("%s %s on %s: %s -> %s\n", subject, kind, object, naos_access_set_name(old), naos_access_set_name(new));
	return 0;
}

static int compare_all(struct comparison *comparison, const struct list *subjects, const struct list *objects, struct naos_error *err)
{
	for (size_t i = 0; i < subjects->count; i++)
		for (size_t j = 0; j < objects->count; j++) {
			unsigned old = 0, new = 0;
			int rc = granted(comparison, comparison->old, subjects, i, objects, j, &old, err);
			if (rc == 0)
				rc = granted(comparison, comparison->new, subjects, i, objects, j, &new, err);
			if (rc == 0 && old != new)
				rc = report(comparison, subjects->names[i], objects->names[j], old, new, err);
			if (rc != 0)
				return rc;
			comparison->pairs++;
		}
	return 0;
}

static int summary(const struct comparison *comparison, struct naos_error *err)
{
	if (comparison->invocation->json)
		return naos_print_json(json_pack("{s:I, s:I, s:I, s:I}", "pairs", (json_int_t)comparison->pairs, "gains",
						 (json_int_t)comparison->gains, "losses",
						 (json_int_t)comparison->losses, "changes", (json_int_t)comparison->others), err);
	printf("%zu pairs of subject and object: %zu gain, %zu lose, %zu change otherwise\n", comparison->pairs, comparison->gains,
	       comparison->losses,
	       comparison->others);
	return 0;
}

static int run_diff(struct naos_invocation *invocation, struct naos_error *err)
{
	naos_autopolicy struct naos_policy *old = NULL, *new = NULL;
	naos_cleanup(clear_list) struct list subjects = { .space = "user" };
	naos_cleanup(clear_list) struct list objects = { .space = "data" };
	const char *subject_path = naos_option_value(invocation, "subjects"), *object_path = naos_option_value(invocation, "objects");
	struct comparison comparison = { .invocation = invocation };
	if (!subject_path || !object_path)
		return naos_error_set(err, NAOS_E_USAGE, "name the files of subjects and objects: --subjects FILE --objects FILE");
	int rc = policy_option_now(invocation, &comparison.now_us, err);
	if (rc == 0)
		rc = naos_policy_load(invocation->operands[0], &old, err);
	if (rc == 0)
		rc = naos_policy_load(invocation->operands[1], &new, err);
	if (rc == 0)
		rc = policy_lines_read(subject_path, take_item, &subjects, err);
	if (rc == 0)
		rc = policy_lines_read(object_path, take_item, &objects, err);
	comparison.old = old;
	comparison.new = new;
	if (rc == 0)
		rc = compare_all(&comparison, &subjects, &objects, err);
	return rc == 0 ? summary(&comparison, err) : rc;
}

static const struct naos_option diff_options[] = {
	{ "subjects", 's', "FILE", "who: one JSON object a line, with the member user (and vm, env, now)" },
	{ "objects", 'o', "FILE", "of what: one JSON object a line, with the member data" },
	{ "now", 'n', "TIME", "compare as if it were this time (default: the clock)" },
	{ 0 },
};

const struct naos_command naos_command_policy_diff = {
	.path = "policy diff", .operands = "OLD NEW", .summary = "List who gains and who loses which level by a new policy",
	.example = "naos policy diff --subjects users.jsonl --objects frames.jsonl ttt.policy ttt.policy.new",
	.min_operands = 2, .max_operands = 2, .options = diff_options, .run = run_diff,
};
