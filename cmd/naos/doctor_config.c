/* Checks of what is configured: files, engine, key manager, file sets, audit log.  SPDX-License-Identifier: Apache-2.0 */
#include "doctor.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "audit/audit.h"
#include "base/uuid.h"
#include "engine/configure.h"
#include "keys/expiry.h"
#include "keys/provider.h"
#include "keys/uri.h"

/* Who can change the configuration chooses where keys come from. */
static void check_owner(struct naos_examination *examination, const char *path)
{
	static const char why[] = "who can change the configuration chooses where keys come from";
	struct stat status;
	if (stat(path, &status) != 0)
		return;
	if (status.st_uid != 0 && status.st_uid != geteuid())
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "config", why, "give it to root: 'chown root'", "%s belongs to user %u", path,
				 (unsigned)status.st_uid);
	if (status.st_mode & (S_IWGRP | S_IWOTH))
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "config", why, "chmod go-w", "%s can be written by others than its owner",
				 path);
}

static void check_drop_ins(struct naos_examination *examination, const char *path)
{
	naos_autofree char *folder = NULL;
	if (asprintf(&folder, "%s.d", path) < 0)
		return;
	check_owner(examination, folder);
	DIR *dir = opendir(folder);
	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		naos_autofree char *file = NULL;
		if (entry->d_name[0] != '.' && asprintf(&file, "%s/%s", folder, entry->d_name) > 0)
			check_owner(examination, file);
	}
	if (dir)
		(void)closedir(dir);
}

static void check_config(struct naos_examination *examination)
{
	static const char why[] = "without it no command that needs a key can work";
	const char *path = naos_config_path(examination->config_path);
	struct naos_error err = NAOS_ERROR_INIT;
	if (naos_config_load(examination->config_path, &examination->config, &err) != 0)
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "config", why, "mend the line named, or make the file readable", "%s",
				 err.message);
	else if (access(path, F_OK) != 0)
		naos_finding_add(examination, NAOS_FINDING_WARNING, "config", why, "copy the example naos.conf and edit it; man 5 naos.conf",
				 "there is no %s: defaults are used", path);
	else
		naos_finding_add(examination, NAOS_FINDING_OK, "config", why, NULL, "%s is valid", path);
	check_owner(examination, path);
	check_drop_ins(examination, path);
}

static void check_engine(struct naos_examination *examination)
{
	static const char why[] = "nothing can be sealed or opened without a back end that passes its known-answer test";
	struct naos_error err = NAOS_ERROR_INIT;
	if (naos_engine_configure(examination->config, &err) != 0)
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "engine", why, "set [engine] backend = auto", "%s", err.message);
	else
		naos_finding_add(examination, NAOS_FINDING_OK, "engine", why, NULL, "AES-GCM by %s, known answers right", naos_engine_name());
}

static void check_pin(struct naos_examination *examination, const char *uri)
{
	static const char why[] = "who can read the PIN can use every key of the token";
	struct naos_token_uri parts = { 0 };
	struct naos_error err = NAOS_ERROR_INIT;
	struct stat status;
	if (naos_token_uri_parse(uri, &parts, &err) != 0) {
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "pin", why, "mend [keymanager] uri; man 5 naos.conf", "%s", err.message);
		return;
	}
	const char *path = parts.pin_source && strncmp(parts.pin_source, "file:", 5) == 0 ? parts.pin_source + 5 : NULL;
	if (!parts.pin_source)
		naos_finding_add(examination, NAOS_FINDING_WARNING, "pin", why, "add pin-source=file:/… to [keymanager] uri",
				 "the address of the token names no source of the PIN");
	else if (path && stat(path, &status) != 0)
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "pin", why, "check pin-source in [keymanager] uri",
				 "the PIN's file %s can't be found: %s", path, strerrordesc_np(errno));
	else if (path && (status.st_mode & 077))
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "pin", why, "chmod 0400", "%s is open to others than its owner (mode %04o)",
				 path, (unsigned)(status.st_mode & 07777));
	else
		naos_finding_add(examination, NAOS_FINDING_OK, "pin", why, NULL, "the PIN comes from %s", parts.pin_source);
	naos_token_uri_clear(&parts);
}

static void check_certificates(struct naos_examination *examination, const char *uri)
{
	static const char why[] = "after its end the key manager is out of reach: files that are open go on, others can't be opened";
	static const char remedy[] = "renew it in the same file ('naos ca renew'); programs that run take it up by themselves";
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_expiry expiry;
	char text[NAOS_EXPIRY_TEXT_BYTES];
	int64_t now = time(NULL);
	int rc = naos_kmip_certificate_expiry(uri, &expiry, &err);
	if (rc == NAOS_E_UNSUPPORTED)
		return;
	if (rc != 0)
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "certificate", why, "check cert and ca in [keymanager] uri", "%s", err.message);
	else if (naos_expiry_is_near(&expiry, now, text))
		naos_finding_add(examination, expiry.unix_s <= now ? NAOS_FINDING_PROBLEM : NAOS_FINDING_WARNING, "certificate", why, remedy, "%s",
				 text);
	else
		naos_finding_add(examination, NAOS_FINDING_OK, "certificate", why, NULL, "certificate and authority are good for %lld days",
				 (long long)(expiry.unix_s - now) / 86400);
}

static void check_keys(struct naos_examination *examination)
{
	static const char why[] = "without its key manager no file can be sealed, and none opened";
	const char *uri = naos_config_string(examination->config, "keymanager", NULL, "uri");
	const char *store = naos_config_string(examination->config, "keymanager", NULL, "store");
	naos_autoprovider struct naos_provider *provider = NULL;
	naos_autofree struct naos_mek *meks = NULL;
	struct naos_error err = NAOS_ERROR_INIT;
	size_t count;
	if (!uri[0]) {
		naos_finding_add(examination, NAOS_FINDING_WARNING, "keys", why, "set [keymanager] uri", "no key manager is configured");
		return;
	}
	if (strncmp(uri, "pkcs11:", 7) == 0)
		check_pin(examination, uri);
	check_certificates(examination, uri);
	if (strncmp(uri, "pkcs11:", 7) == 0 && access(store, F_OK) != 0) /* opening would make it */
		naos_finding_add(examination, NAOS_FINDING_WARNING, "keys", why, "make the first key: 'naos key create NAME'",
				 "there is no key store %s: %s", store, strerrordesc_np(errno));
	else if (naos_provider_open(uri, store, &provider, &err) != 0 || naos_mek_list(provider, &meks, &count, &err) != 0)
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "keys", why, naos_error_info(err.code)->remedy, "%s", err.message);
	else
		naos_finding_add(examination, NAOS_FINDING_OK, "keys", why, NULL, "the key manager answers, %zu key versions", count);
}

static void check_file_sets(struct naos_examination *examination)
{
	static const char why[] = "the id of a file set is part of every sealed file: it must be the same on all machines";
	const char *name;
	unsigned count = 0;
	for (; (name = naos_config_section_name(examination->config, "fileset", count)); count++) {
		struct naos_uuid id;
		if (!naos_uuid_parse(naos_config_string(examination->config, "fileset", name, "id"), &id))
			naos_finding_add(examination, NAOS_FINDING_PROBLEM, "fileset", why, "give [fileset NAME] an id, once (uuidgen)",
					 "file set %s has no valid id", name);
	}
	if (count > 0)
		naos_finding_add(examination, NAOS_FINDING_OK, "fileset", why, NULL, "%u configured", count);
}

static void check_audit(struct naos_examination *examination)
{
	static const char why[] = "who used which key when can be proven only by a log that nobody changed";
	const char *dir = naos_config_string(examination->config, "audit", NULL, "log");
	const struct naos_audit_check check = { 0 };
	struct naos_audit_report report;
	struct naos_error err = NAOS_ERROR_INIT;
	if (!dir[0])
		naos_finding_add(examination, NAOS_FINDING_WARNING, "audit", why, "set [audit] log", "no audit log is configured");
	else if (naos_audit_verify(dir, &check, &report, &err) != 0)
		naos_finding_add(examination, NAOS_FINDING_PROBLEM, "audit", why, "'naos audit verify' says more", "%s", err.message);
	else
		naos_finding_add(examination, NAOS_FINDING_OK, "audit", why, NULL, "%s: %llu records, intact", dir,
				 (unsigned long long)report.size);
}

void naos_examine_config(struct naos_examination *examination)
{
	check_config(examination);
	if (!examination->config)
		return;
	check_engine(examination);
	check_keys(examination);
	check_file_sets(examination);
	check_audit(examination);
}
