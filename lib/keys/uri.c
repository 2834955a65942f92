/* pkcs11: URIs (RFC 7512) and where the PIN comes from.  SPDX-License-Identifier: Apache-2.0 */
#include "keys/uri.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#define SCHEME "pkcs11:"

/* Where a decoded attribute goes, or why it is refused. */
struct attribute {
	const char *name;
	bool query;
	size_t offset; /* in struct naos_token_uri, if refusal is NULL */
	const char *refusal;
};

#define NO_OBJECT "keys are chosen by their name, the address names the token only"
#define PLACE(field) .offset = offsetof(struct naos_token_uri, field)
static const struct attribute attributes[] = {
	{ "token", false, PLACE(token) },
	{ "manufacturer", false, PLACE(manufacturer) },
	{ "serial", false, PLACE(serial) },
	{ "model", false, PLACE(model) },
	{ "object", false, .refusal = NO_OBJECT },
	{ "id", false, .refusal = NO_OBJECT },
	{ "type", false, .refusal = NO_OBJECT },
	{ "module-path", true, PLACE(module_path) },
	{ "module-name", true, PLACE(module_name) },
	{ "pin-source", true, PLACE(pin_source) },
	{ "pin-value", true,
	  .refusal = "a PIN in an address is seen in process lists, shell histories and logs; "
		     "use pin-source=file:/path, fd:N or systemd:NAME" },
};

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The characters that RFC 7512 lets stand for themselves in a value ('&' in the path, '/', '?' and '|' in the query). */
static bool may_stand(char c, bool query)
{
	static const char common[] = "-._~:[]@!$'()*+,=";
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr(common, c)) ||
	       (query ? c == '/' || c == '?' || c == '|' : c == '&');
}

static int decode(const char *name, const char *text, size_t bytes, bool query, char **ret, struct naos_error *err)
{
	naos_autofree char *value = malloc(bytes + 1);
	size_t used = 0;
	if (!value)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for an address");
	for (size_t i = 0; i < bytes; i++) {
		char c = text[i];
		if (c == '%') {
			int high = i + 1 < bytes ? hex_digit(text[i + 1]) : -1, low = i + 2 < bytes ? hex_digit(text[i + 2]) : -1;
			if (high < 0 || low < 0 || high + low == 0)
				return naos_error_set(err, NAOS_E_USAGE, "address of the token: '%%' in '%s' needs two hexadecimal digits, not 00",
						      name);
			c = (char)(high << 4 | low);
			i += 2;
		} else if (!may_stand(c, query)) {
			return naos_error_set(err, NAOS_E_USAGE, "address of the token: a character in '%s' must be written as %%XX", name);
		}
		value[used++] = c;
	}
	value[used] = 0;
	*ret = naos_steal(value);
	return 0;
}

static int take_slot_id(const char *value, struct naos_token_uri *uri, struct naos_error *err)
{
	char *end;
	errno = 0;
	uri->slot_id = strtoull(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end || errno != 0)
		return naos_error_set(err, NAOS_E_USAGE, "address of the token: 'slot-id' must be a decimal number");
	uri->has_slot_id = true;
	return 0;
}

/* The attribute whose name is the first `bytes` of text, or NULL. */
static const struct attribute *find_attribute(const char *text, size_t bytes, bool query)
{
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(attributes); i++)
		if (attributes[i].query == query && strlen(attributes[i].name) == bytes && memcmp(attributes[i].name, text, bytes) == 0)
			return &attributes[i];
	return NULL;
}

/* One name=value of the path or the query. */
static int take_attribute(const char *text, size_t bytes, bool query, struct naos_token_uri *uri, struct naos_error *err)
{
	const char *equals = memchr(text, '=', bytes);
	size_t name_bytes = equals ? (size_t)(equals - text) : bytes;
	bool is_slot = !query && name_bytes == 7 && memcmp(text, "slot-id", 7) == 0;
	const struct attribute *attribute = find_attribute(text, name_bytes, query);
	naos_autofree char *value = NULL;
	if (!attribute && !is_slot)
		return naos_error_set(err, NAOS_E_USAGE, "address of the token: the %s knows no such attribute; there are %s",
				      query ? "part behind '?'" : "part before '?'",
				      query ? "pin-source, module-path and module-name (separated by '&')" :
					      "token, manufacturer, serial, model and slot-id (separated by ';')");
	const char *name = is_slot ? "slot-id" : attribute->name;
	if (attribute && attribute->refusal)
		return naos_error_set(err, NAOS_E_USAGE, "address of the token: '%s' is refused: %s", name, attribute->refusal);
	if (!equals)
		return naos_error_set(err, NAOS_E_USAGE, "address of the token: '%s' has no value", name);
	char **place = attribute ? (char **)((char *)uri + attribute->offset) : NULL;
	if (place ? *place != NULL : uri->has_slot_id)
		return naos_error_set(err, NAOS_E_USAGE, "address of the token: '%s' is given twice", name);
	int rc = decode(name, equals + 1, bytes - name_bytes - 1, query, &value, err);
	if (rc != 0)
		return rc;
	if (is_slot)
		return take_slot_id(value, uri, err);
	if (value[0] == 0)
		return naos_error_set(err, NAOS_E_USAGE, "address of the token: '%s' has no value", name);
	*place = naos_steal(value);
	return 0;
}

static int take_attributes(const char *text, size_t bytes, bool query, struct naos_token_uri *uri, struct naos_error *err)
{
	const char separator = query ? '&' : ';';
	for (const char *at = text, *end = text + bytes; at < end;) {
		const char *stop = memchr(at, separator, (size_t)(end - at));
		if (!stop)
			stop = end;
		int rc = take_attribute(at, (size_t)(stop - at), query, uri, err);
		if (rc != 0)
			return rc;
		at = stop + 1;
	}
	return 0;
}

int naos_token_uri_parse(const char *text, struct naos_token_uri *ret, struct naos_error *err)
{
	struct naos_token_uri uri = { 0 };
	if (strnlen(text, NAOS_URI_MAX_BYTES + 1) > NAOS_URI_MAX_BYTES)
		return naos_error_set(err, NAOS_E_LIMIT, "the address of the token is longer than %d bytes", NAOS_URI_MAX_BYTES);
	if (strncmp(text, SCHEME, strlen(SCHEME)) != 0)
		return naos_error_set(err, NAOS_E_USAGE, "the address of a token begins with '" SCHEME "'");
	const char *path = text + strlen(SCHEME), *query = strchr(path, '?');
	size_t path_bytes = query ? (size_t)(query - path) : strlen(path);
	int rc = take_attributes(path, path_bytes, false, &uri, err);
	if (rc == 0 && query)
		rc = take_attributes(query + 1, strlen(query + 1), true, &uri, err);
	if (rc == 0 && uri.module_path && uri.module_path[0] != '/')
		rc = naos_error_set(err, NAOS_E_USAGE, "address of the token: 'module-path' must be an absolute path");
	if (rc == 0 && uri.module_name && strchr(uri.module_name, '/'))
		rc = naos_error_set(err, NAOS_E_USAGE, "address of the token: 'module-name' is a name; use 'module-path' for a path");
	if (rc != 0) {
		naos_token_uri_clear(&uri);
		return rc;
	}
	*ret = uri;
	return 0;
}

void naos_token_uri_clear(struct naos_token_uri *uri)
{
	free(uri->token);
	free(uri->manufacturer);
	free(uri->serial);
	free(uri->model);
	free(uri->module_path);
	free(uri->module_name);
	free(uri->pin_source);
	*uri = (struct naos_token_uri){ 0 };
}

int naos_token_uri_module(const struct naos_token_uri *uri, char **ret, struct naos_error *err)
{
	static const char *const directories[] = { "/usr/lib/softhsm", "/usr/lib/x86_64-linux-gnu/pkcs11", "/usr/lib/x86_64-linux-gnu/softhsm",
						   "/usr/lib/aarch64-linux-gnu/pkcs11", "/usr/lib/pkcs11", "/usr/lib64/pkcs11",
						   "/usr/lib64/softhsm", "/usr/local/lib/softhsm", "/usr/local/lib/pkcs11",
						   "/usr/local/lib" };
	const char *name = uri->module_name ? uri->module_name : "softhsm2";
	if (uri->module_path) {
		*ret = strdup(uri->module_path);
		return *ret ? 0 : naos_error_set(err, NAOS_E_NOMEM, "no memory for an address");
	}
	for (size_t i = 0; i < 2 * NAOS_ARRAY_LENGTH(directories); i++) {
		naos_autofree char *path = NULL;
		if (asprintf(&path, "%s/%s%s.so", directories[i / 2], i % 2 ? "" : "lib", name) < 0) {
			path = NULL;
			return naos_error_set(err, NAOS_E_NOMEM, "no memory for an address");
		}
		if (access(path, R_OK) == 0) {
			*ret = naos_steal(path);
			return 0;
		}
	}
	return naos_error_set(err, NAOS_E_KEYMANAGER,
			      "no PKCS#11 module lib%s.so in the usual directories; install it (SoftHSM: package softhsm2) "
			      "or add module-path=/… to the address", name);
}

static int pin_from_file(const char *path, struct naos_secret **ret, struct naos_error *err)
{
	struct stat info;
	naos_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &info) != 0)
		return naos_error_set_errno(err, errno, "cannot open the PIN file %s", path);
	if (!S_ISREG(info.st_mode))
		return naos_error_set(err, NAOS_E_PIN, "the PIN file %s is not a regular file", path);
	if (info.st_mode & (S_IROTH | S_IWOTH | S_IWGRP))
		return naos_error_set(err, NAOS_E_PIN, "the PIN file %s is open to others (mode %04o); chmod 600 it and change the PIN", path,
				      (unsigned)info.st_mode & 07777);
	return naos_secret_read_fd(fd, NAOS_PIN_MAX_BYTES, "PIN", ret, err);
}

static int pin_from_credential(const char *name, struct naos_secret **ret, struct naos_error *err)
{
	const char *directory = secure_getenv("CREDENTIALS_DIRECTORY");
	naos_autofree char *path = NULL;
	if (name[0] == 0 || name[0] == '.' || strchr(name, '/'))
		return naos_error_set(err, NAOS_E_USAGE, "pin-source=systemd: needs the plain name of a credential");
	if (!directory || directory[0] != '/')
		return naos_error_set(err, NAOS_E_PIN,
				      "there is no credential '%s': CREDENTIALS_DIRECTORY is not set; does the unit have LoadCredential= "
				      "or LoadCredentialEncrypted=?", name);
	if (asprintf(&path, "%s/%s", directory, name) < 0) {
		path = NULL;
		return naos_error_set(err, NAOS_E_NOMEM, "no memory for a file name");
	}
	return pin_from_file(path, ret, err);
}

static int pin_from_descriptor(const char *number, struct naos_secret **ret, struct naos_error *err)
{
	char *end;
	unsigned long fd = strtoul(number, &end, 10);
	if (number[0] < '0' || number[0] > '9' || *end || fd > 1 << 20)
		return naos_error_set(err, NAOS_E_USAGE, "pin-source=fd: needs the number of an open descriptor");
	return naos_secret_read_fd((int)fd, NAOS_PIN_MAX_BYTES, "PIN", ret, err);
}

int naos_token_uri_pin(const struct naos_token_uri *uri, struct naos_secret **ret, struct naos_error *err)
{
	const char *source = uri->pin_source;
	int rc;
	if (!source) {
		*ret = NULL;
		return 0;
	}
	if (strncmp(source, "file:/", 6) == 0)
		rc = pin_from_file(source + 5, ret, err);
	else if (strncmp(source, "fd:", 3) == 0)
		rc = pin_from_descriptor(source + 3, ret, err);
	else if (strncmp(source, "systemd:", 8) == 0)
		rc = pin_from_credential(source + 8, ret, err);
	else /* not repeated: it may be a PIN put in the wrong place */
		rc = naos_error_set(err, NAOS_E_USAGE, "pin-source must be file:/path, fd:N or systemd:NAME");
	if (rc == 0 || rc == NAOS_E_NOMEM || rc == NAOS_E_MEMLOCK)
		return rc;
	if (err)
		err->code = NAOS_E_PIN; /* whatever the system said: what is missing is the PIN */
	return NAOS_E_PIN;
}
