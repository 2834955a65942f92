/* The bounds that the key manager is up against, measured alone:
 *     floor tls SERVER-CERT SERVER-KEY CLIENT-CERT CLIENT-KEY CA CONNECTIONS REQUEST-BYTES ANSWER-BYTES SECONDS
 *         messages of these lengths there and back over mutual TLS 1.3, a client thread per connection, two server threads
 *     floor hsm MODULE TOKEN-LABEL PIN-FILE THREADS SECONDS
 *         C_EncryptInit and C_Encrypt of what a wrap encrypts, with a key of the session, nothing else
 * Each prints one JSON object: operations, seconds, CPU seconds of both sides.  SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <p11-kit/pkcs11.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <openssl/ssl.h>

#define MAX_THREADS 256
#define MAX_BYTES 65536
#define SERVERS 2
#define READY 64
/* A key of 32 bytes and a digest; the associated data of a wrapped key. */
#define PLAIN_BYTES 64
#define ASSOCIATED_BYTES 72

static int64_t now_ns(void)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static double cpu_s(void)
{
	struct rusage usage;
	(void)getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void report(uint64_t operations, int64_t start_ns, double start_cpu_s)
{
	double seconds = (double)(now_ns() - start_ns) / 1e9;
	printf("{\"operations\": %llu, \"seconds\": %.3f, \"operations_per_s\": %.0f, \"cpu_us\": %.2f}\n", (unsigned long long)operations,
	       seconds, (double)operations / seconds, operations ? 1e6 * (cpu_s() - start_cpu_s) / (double)operations : 0.0);
}

static void fail(const char *what)
{
	(void)fprintf(stderr, "floor: %s failed\n", what);
	exit(1);
}

/* --- TLS -------------------------------------------------------------------------------------------------------------- */

static struct {
	SSL_CTX *client_tls, *server_tls;
	struct sockaddr_in address;
	size_t request_bytes, answer_bytes;
	pthread_barrier_t ready;
	atomic_bool stop;
	int epolls[SERVERS];
} tls;

static SSL_CTX *context(const SSL_METHOD *method, const char *certificate, const char *key, const char *ca)
{
	SSL_CTX *made = SSL_CTX_new(method);
	if (!made || SSL_CTX_use_certificate_chain_file(made, certificate) != 1 ||
	    SSL_CTX_use_PrivateKey_file(made, key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_load_verify_locations(made, ca, NULL) != 1)
		fail("reading certificates");
	SSL_CTX_set_verify(made, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	SSL_CTX_set_read_ahead(made, 1);
	(void)SSL_CTX_set_num_tickets(made, 0);
	return made;
}

static SSL *start(SSL_CTX *with, int fd)
{
	const int yes = 1;
	SSL *ssl = SSL_new(with);
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (!ssl || SSL_set_fd(ssl, fd) != 1)
		fail("SSL_new");
	return ssl;
}

static bool read_all(SSL *ssl, uint8_t *into, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		int got = SSL_read(ssl, into + done, (int)(bytes - done));
		if (got <= 0)
			return false;
		done += (size_t)got;
	}
	return true;
}

static void *tls_client(void *argument)
{
	static _Thread_local uint8_t bytes[MAX_BYTES];
	uint64_t *count = argument;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&tls.address, sizeof(tls.address)) != 0)
		fail("connect");
	SSL *ssl = start(tls.client_tls, fd);
	if (SSL_connect(ssl) != 1)
		fail("SSL_connect");
	(void)pthread_barrier_wait(&tls.ready);
	while (!tls.stop && SSL_write(ssl, bytes, (int)tls.request_bytes) > 0 && read_all(ssl, bytes, tls.answer_bytes))
		++*count;
	return NULL;
}

/* A request comes in one piece on this machine; where it does not, the rest is waited for. */
static void *tls_server(void *argument)
{
	static _Thread_local uint8_t bytes[MAX_BYTES];
	const int *epoll_fd = argument;
	for (;;) {
		struct epoll_event events[READY];
		int count = epoll_wait(*epoll_fd, events, READY, -1);
		for (int i = 0; i < count; i++) {
			SSL *ssl = events[i].data.ptr;
			if (!read_all(ssl, bytes, tls.request_bytes) || SSL_write(ssl, bytes, (int)tls.answer_bytes) <= 0)
				(void)epoll_ctl(*epoll_fd, EPOLL_CTL_DEL, SSL_get_fd(ssl), NULL);
		}
	}
	return NULL;
}

static int measure_tls(char **argv)
{
	static uint64_t counts[MAX_THREADS];
	pthread_t threads[MAX_THREADS], servers[SERVERS];
	size_t count = strtoul(argv[7], NULL, 10);
	socklen_t bytes = sizeof(tls.address);
	tls.request_bytes = strtoul(argv[8], NULL, 10);
	tls.answer_bytes = strtoul(argv[9], NULL, 10);
	if (count < 1 || count > MAX_THREADS || tls.request_bytes > MAX_BYTES || tls.answer_bytes > MAX_BYTES)
		fail("a number");
	tls.server_tls = context(TLS_server_method(), argv[2], argv[3], argv[6]);
	tls.client_tls = context(TLS_client_method(), argv[4], argv[5], argv[6]);
	tls.address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&tls.address, bytes) != 0 || listen(listener, MAX_THREADS) != 0 ||
	    getsockname(listener, (struct sockaddr *)&tls.address, &bytes) != 0)
		fail("listen");
	(void)pthread_barrier_init(&tls.ready, NULL, (unsigned)count + 1);
	for (size_t i = 0; i < SERVERS; i++)
		tls.epolls[i] = epoll_create1(0);
	for (size_t i = 0; i < count; i++) {
		if (pthread_create(&threads[i], NULL, tls_client, &counts[i]) != 0)
			fail("pthread_create");
		SSL *ssl = start(tls.server_tls, accept(listener, NULL, NULL));
		struct epoll_event event = { .events = EPOLLIN, .data.ptr = ssl };
		if (SSL_accept(ssl) != 1 || epoll_ctl(tls.epolls[i % SERVERS], EPOLL_CTL_ADD, SSL_get_fd(ssl), &event) != 0)
			fail("SSL_accept");
	}
	for (size_t i = 0; i < SERVERS; i++)
		if (pthread_create(&servers[i], NULL, tls_server, &tls.epolls[i]) != 0)
			fail("pthread_create");
	(void)pthread_barrier_wait(&tls.ready);
	int64_t start_ns = now_ns();
	double start_cpu_s = cpu_s();
	(void)sleep((unsigned)strtoul(argv[10], NULL, 10));
	tls.stop = true;
	uint64_t total = 0;
	for (size_t i = 0; i < count; i++) {
		(void)pthread_join(threads[i], NULL);
		total += counts[i];
	}
	report(total, start_ns, start_cpu_s);
	return 0;
}

/* --- HSM -------------------------------------------------------------------------------------------------------------- */

static struct {
	CK_FUNCTION_LIST *f;
	CK_SLOT_ID slot;
	atomic_bool stop;
} hsm;

static void must(CK_RV rv, const char *what)
{
	if (rv != CKR_OK)
		fail(what);
}

static void *hsm_thread(void *argument)
{
	uint64_t *count = argument;
	CK_SESSION_HANDLE session;
	CK_OBJECT_HANDLE key;
	CK_BBOOL yes = CK_TRUE, no = CK_FALSE;
	CK_ULONG length = 32;
	CK_ATTRIBUTE template[] = { { CKA_TOKEN, &no, 1 }, { CKA_SENSITIVE, &yes, 1 }, { CKA_EXTRACTABLE, &no, 1 },
				    { CKA_ENCRYPT, &yes, 1 }, { CKA_VALUE_LEN, &length, sizeof(length) } };
	CK_MECHANISM generate = { CKM_AES_KEY_GEN, NULL, 0 };
	must(hsm.f->C_OpenSession(hsm.slot, CKF_SERIAL_SESSION | CKF_RW_SESSION, NULL, NULL, &session), "C_OpenSession");
	must(hsm.f->C_GenerateKey(session, &generate, template, sizeof(template) / sizeof(*template), &key), "C_GenerateKey");
	uint8_t iv[12] = { 0 }, associated[ASSOCIATED_BYTES] = { 0 }, plain[PLAIN_BYTES] = { 0 }, out[PLAIN_BYTES + 64];
	while (!hsm.stop) {
		CK_GCM_PARAMS params = { .iv_ptr = iv, .iv_len = sizeof(iv), .iv_bits = 8 * sizeof(iv), .aad_ptr = associated,
					 .aad_len = sizeof(associated), .tag_bits = 128 };
		CK_MECHANISM mechanism = { CKM_AES_GCM, &params, sizeof(params) };
		CK_ULONG bytes = sizeof(out);
		must(hsm.f->C_EncryptInit(session, &mechanism, key), "C_EncryptInit");
		must(hsm.f->C_Encrypt(session, plain, sizeof(plain), out, &bytes), "C_Encrypt");
		(*(uint64_t *)iv)++; /* of this measurement only: a key used for nothing else */
		++*count;
	}
	return NULL;
}

static void find_token(const char *label)
{
	CK_SLOT_ID slots[16];
	CK_ULONG count = 16;
	CK_TOKEN_INFO info;
	must(hsm.f->C_GetSlotList(CK_TRUE, slots, &count), "C_GetSlotList");
	for (CK_ULONG i = 0; i < count; i++) {
		hsm.slot = slots[i];
		if (hsm.f->C_GetTokenInfo(slots[i], &info) == CKR_OK && strncmp((char *)info.label, label, strlen(label)) == 0)
			return;
	}
	fail("finding the token");
}

static int measure_hsm(char **argv)
{
	static uint64_t counts[MAX_THREADS];
	pthread_t threads[MAX_THREADS];
	char pin[128];
	size_t count = strtoul(argv[5], NULL, 10);
	int fd = open(argv[4], O_RDONLY | O_CLOEXEC);
	ssize_t pin_bytes = fd >= 0 ? read(fd, pin, sizeof(pin)) : -1;
	void *module = dlopen(argv[2], RTLD_NOW);
	CK_C_GetFunctionList get = module ? (CK_C_GetFunctionList)dlsym(module, "C_GetFunctionList") : NULL;
	if (!get || get(&hsm.f) != CKR_OK || count < 1 || count > MAX_THREADS || pin_bytes <= 0)
		fail("loading the module");
	CK_C_INITIALIZE_ARGS locks = { .flags = CKF_OS_LOCKING_OK };
	CK_SESSION_HANDLE anchor;
	must(hsm.f->C_Initialize(&locks), "C_Initialize");
	find_token(argv[3]);
	must(hsm.f->C_OpenSession(hsm.slot, CKF_SERIAL_SESSION, NULL, NULL, &anchor), "C_OpenSession");
	pin_bytes -= pin[pin_bytes - 1] == '\n';
	must(hsm.f->C_Login(anchor, CKU_USER, (CK_UTF8CHAR *)pin, (CK_ULONG)pin_bytes), "C_Login");
	int64_t start_ns = now_ns();
	double start_cpu_s = cpu_s();
	for (size_t i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, hsm_thread, &counts[i]) != 0)
			fail("pthread_create");
	(void)sleep((unsigned)strtoul(argv[6], NULL, 10));
	hsm.stop = true;
	uint64_t total = 0;
	for (size_t i = 0; i < count; i++) {
		(void)pthread_join(threads[i], NULL);
		total += counts[i];
	}
	report(total, start_ns, start_cpu_s);
	return hsm.f->C_Finalize(NULL) == CKR_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
	if (argc == 11 && strcmp(argv[1], "tls") == 0)
		return measure_tls(argv);
	if (argc == 7 && strcmp(argv[1], "hsm") == 0)
		return measure_hsm(argv);
	(void)fputs("usage: floor tls … or floor hsm …: see the head of floor.c\n", stderr);
	return 2;
}
