/* naos-fs: mounts a file set.  Users see plain files; below lie only sealed ones.  SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <mntent.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <sys/sysmacros.h>

#include "base/confine.h"
#include "base/log.h"
#include "base/notify.h"
#include "engine/gpu.h"
#include "keys/expiry.h"
#include "content.h"
#include "identity.h"
#include "locks.h"
#include "options.h"
#include "pages.h"
#include "transport.h"
#include "unmount.h"

#define TEND_S 2
#define WARN_S 86400
#define DRAIN_MS 10000     /* after SIGTERM, for files that are still open */
#define ENDING_MS 30000u /* for an earlier mount that seals its files */

static const struct option long_options[] = {
	{ "config", required_argument, NULL, 'c' }, { "foreground", no_argument, NULL, 'f' }, { "verbose", no_argument, NULL, 'v' },
	{ "version", no_argument, NULL, 'V' },	    { "help", no_argument, NULL, 'h' },	      { NULL, 0, NULL, 0 },
};

static void usage(void)
{
	(void)fputs("Usage: naos-fs [--config FILE] [--foreground] [-o OPTION,...] FILESET [MOUNTPOINT]\n"
		    "Mounts a file set: users see plain files, below lie only sealed ones.\n\n"
		    "      --config FILE   configuration instead of /etc/naos/naos.conf\n"
		    "      --foreground    stays in the foreground and logs to standard error\n"
		    "  -o OPTION,...       mount options; see naos-fs(8)\n"
		    "      --verbose       logs more\n"
		    "      --version       version\n"
		    "      --help          this text\n\n"
		    "fusermount3 -u MOUNTPOINT, umount or SIGTERM ends it; what was changed is sealed before it is gone.\n"
		    "SIGHUP asks the key manager at once for rotated and revoked keys.\n"
		    "Example: naos-fs -o noatime genomes /genomes\n",
		    stdout);
}

/* --- operations ---------------------------------------------------------------------------------------------------------- */

static void init(void *context, struct fuse_conn_info *conn)
{
	const struct naos_fs *fs = context;
	const unsigned wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO |
				FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_ASYNC_DIO |
				FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_IOCTL_DIR | FUSE_CAP_EXPORT_SUPPORT;
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE | FUSE_CAP_HANDLE_KILLPRIV |
				  FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_WRITEBACK_CACHE);
	conn->want |= conn->capable & (wanted | (fs->shared ? FUSE_CAP_AUTO_INVAL_DATA : FUSE_CAP_EXPLICIT_INVAL_DATA));
	conn->max_write = (unsigned)NAOS_FS_REQUEST_BYTES;
	conn->max_readahead = 4u << 20;
	conn->max_background = 64;
	conn->congestion_threshold = 48;
	conn->time_gran = 1;
}

static struct fuse_lowlevel_ops operations(const struct naos_fs *fs)
{
	return (struct fuse_lowlevel_ops){
		.init = init,
		.lookup = fs_lookup,
		.forget = fs_forget,
		.forget_multi = fs_forget_multi,
		.getattr = fs_getattr,
		.setattr = fs_setattr,
		.readlink = fs_readlink,
		.statfs = fs_statfs,
		.mknod = fs_mknod,
		.mkdir = fs_mkdir,
		.symlink = fs_symlink,
		.link = fs_link,
		.unlink = fs_unlink,
		.rmdir = fs_rmdir,
		.rename = fs_rename,
		.opendir = fs_opendir,
		.readdir = fs_readdir,
		.readdirplus = fs_readdirplus,
		.releasedir = fs_releasedir,
		.fsyncdir = fs_fsyncdir,
		.setxattr = fs_setxattr,
		.getxattr = fs_getxattr,
		.listxattr = fs_listxattr,
		.removexattr = fs_removexattr,
		.create = fs_create,
		.open = fs_open,
		.release = fs_release,
		.read = fs_read,
		.write = fs_write,
		.flush = fs_flush,
		.fsync = fs_fsync,
		.fallocate = fs_fallocate,
		.lseek = fs_lseek,
		.copy_file_range = fs_copy_file_range,
		.ioctl = fs_ioctl,
		.getlk = fs->shared ? fs_getlk : NULL,
		.setlk = fs->shared ? fs_setlk : NULL,
		.flock = fs->shared ? fs_flock : NULL,
	};
}

/* --- start ----------------------------------------------------------------------------------------------------------------- */

static void harden(void)
{
	const struct rlimit none = { 0, 0 };
	struct rlimit files;
	(void)setrlimit(RLIMIT_CORE, &none);
	(void)prctl(PR_SET_DUMPABLE, 0);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* each file that the kernel knows costs a descriptor */
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
}

/* Whether a file set of this name is mounted, wherever. */
static bool is_mounted(const char *fileset)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	const struct mntent *at;
	bool found = false;
	while (mounts && !found && (at = getmntent(mounts)))
		found = strcmp(at->mnt_type, "fuse.naos") == 0 && strcmp(at->mnt_fsname, fileset) == 0;
	if (mounts)
		(void)endmntent(mounts);
	return found;
}

/* mode = local: two mounts that both think they are the only one would lose data.  One that was unmounted a moment ago still seals what
 * was changed: it is waited for. */
static bool lock_root(struct naos_fs *fs)
{
	const int how = (fs->shared || fs->read_only ? LOCK_SH : LOCK_EX) | LOCK_NB;
	for (unsigned waited = 0; flock(fs->root_dir_fd, how) != 0; waited += 50) {
		if (waited >= ENDING_MS || is_mounted(fs->set->name))
			return false;
		(void)nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	}
	return true;
}

static int open_root(struct naos_fs *fs, const char *path, struct naos_error *err)
{
	fs->root_dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fs->root_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fs->proc_fd = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fs->root_dir_fd < 0 || fs->root_fd < 0)
		return naos_error_set_errno(err, errno, "cannot open the directory '%s' of file set '%s'", path, fs->set->name);
	if (fs->proc_fd < 0)
		return naos_error_set_errno(err, errno, "cannot open /proc/self/fd");
	if (!lock_root(fs))
		return naos_error_set(err, NAOS_E_BUSY, "file set '%s' is mounted already%s", fs->set->name,
				      fs->shared ? " with mode = local" : "; several mounts need mode = shared");
	return 0;
}

static int open_session(struct naos_fs *fs, const struct options *options, struct naos_error *err)
{
	char text[NAOS_FS_OPTION_BYTES + 512];
	const struct fuse_lowlevel_ops ops = operations(fs);
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	(void)snprintf(text, sizeof(text), "fsname=%s,subtype=naos,default_permissions%s%s%s", fs->set->name,
		       options->allow_other ? ",allow_other" : "", options->kernel[0] ? "," : "", options->kernel);
	if (fuse_opt_add_arg(&args, "naos-fs") != 0 || fuse_opt_add_arg(&args, "-o") != 0 || fuse_opt_add_arg(&args, text) != 0)
		return naos_error_set(err, NAOS_E_NOMEM, "no memory to mount");
	fs->session = fuse_session_new(&args, &ops, sizeof(ops), fs);
	fuse_opt_free_args(&args);
	if (!fs->session)
		return naos_error_set(err, NAOS_E_USAGE, "the mount options '%s' were not understood", text);
	if (fuse_session_mount(fs->session, options->mountpoint) != 0)
		return naos_error_set(err, NAOS_E_SYSTEM, "cannot mount at '%s'", options->mountpoint);
	return transport_open(fs, err);
}

/* The kernel reads ahead 128 KiB unless it is told otherwise. */
static void set_readahead(const struct options *options)
{
	char path[64];
	struct stat status;
	if (stat(options->mountpoint, &status) != 0)
		return;
	(void)snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(status.st_dev), minor(status.st_dev));
	naos_autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!write(fd, "4096", 4);
}

static int start(struct naos_fs *fs, const struct options *options, const struct naos_config *config, struct naos_error *err)
{
	fs->key_uri = naos_config_string(config, "keymanager", NULL, "uri");
	int rc = naos_filesets_open(config, options->fileset, NULL, &fs->sets, err);
	if (rc == 0)
		rc = naos_filesets_find(fs->sets, options->fileset, &fs->set, err);
	if (rc == 0)
		rc = open_root(fs, options->path, err);
	if (rc == 0)
		rc = reopen_create(fs, err);
	if (rc == 0)
		rc = inode_table_create(fs, err);
	if (rc == 0)
		rc = content_table_create(fs, err);
	if (rc == 0 && fs->shared)
		rc = lock_table_create(fs, err);
	if (rc == 0)
		rc = open_session(fs, options, err);
	return rc;
}

/* --- life ------------------------------------------------------------------------------------------------------------------ */

static void wake(void *context)
{
	(void)eventfd_write(*(int *)context, 1);
}

/* Somebody is told before nothing can be opened any more. */
static void warn_of_expiry(const struct naos_fs *fs)
{
	struct naos_error err = NAOS_ERROR_INIT;
	struct naos_expiry expiry;
	char text[NAOS_EXPIRY_TEXT_BYTES];
	int rc = naos_kmip_certificate_expiry(fs->key_uri, &expiry, &err);
	if (rc == 0 && naos_expiry_is_near(&expiry, time(NULL), text))
		naos_log(NAOS_LOG_WARNING, "event=certificate-ends %s", text);
	else if (rc != 0 && rc != NAOS_E_UNSUPPORTED)
		naos_log(NAOS_LOG_WARNING, "event=certificate-unreadable reason=\"%s\"", err.message);
}

static void *tend(void *context)
{
	struct naos_fs *fs = context;
	struct pollfd ended = { .fd = fs->ended_fd, .events = POLLIN };
	time_t warned = 0;
	while (poll(&ended, 1, 0) == 0) {
		if (time(NULL) - warned >= WARN_S) {
			warned = time(NULL);
			warn_of_expiry(fs);
		}
		const char *gpu = naos_gpu_warning();
		if (gpu)
			naos_log(NAOS_LOG_WARNING, "event=gpu-failed reason=\"%s\"", gpu);
		naos_filesets_await(fs->sets, TEND_S);
		naos_filesets_tend(fs->sets);
	}
	return NULL;
}

static void unmount(struct naos_fs *fs, struct unmounter *unmounter)
{
	unmounter_use(unmounter);
	fuse_session_unmount(fs->session); /* notices if it is done */
}

/* Until the file system is unmounted, by whomever. */
static void serve(struct naos_fs *fs, int signals, struct unmounter *unmounter)
{
	struct pollfd wait[2] = { { .fd = fs->ended_fd, .events = POLLIN }, { .fd = signals, .events = POLLIN } };
	for (;;) {
		struct signalfd_siginfo info;
		if (poll(wait, 2, -1) < 0)
			continue;
		if (wait[0].revents)
			return;
		if (read(signals, &info, sizeof(info)) == sizeof(info) && info.ssi_signo != SIGHUP)
			break;
		naos_filesets_refresh(fs->sets); /* a key was rotated or revoked: don't wait until it is noticed */
	}
	naos_notify("STOPPING=1");
	unmount(fs, unmounter);
	lock_table_stop(fs);
	if (poll(wait, 1, DRAIN_MS) == 0)
		naos_log(NAOS_LOG_WARNING, "event=stopped-in-use (open files get an error from now on)");
}

static int run(struct naos_fs *fs, const struct options *options, const struct naos_config *config, int signals, int report)
{
	struct naos_error err = NAOS_ERROR_INIT;
	pthread_t tending;
	bool tended = false;
	struct unmounter unmounter = { .pid = 0 };
	fs->ended_fd = eventfd(0, EFD_CLOEXEC);
	int rc = fs->ended_fd < 0 ? naos_error_set_errno(&err, errno, "cannot make an event descriptor") : 0;
	if (rc == 0)
		rc = unmounter_start(&unmounter, options->mountpoint, &err);
	if (rc == 0)
		rc = start(fs, options, config, &err);
	if (rc == 0) /* it is mounted; no request of a user was taken yet */
		rc = naos_confine(NAOS_CONFINE_FS, NULL, &err);
	if (rc == 0)
		rc = pages_create(fs, &err);
	if (rc == 0)
		rc = content_table_start(fs, &err);
	if (rc == 0)
		rc = transport_start(fs, wake, &fs->ended_fd, &err);
	if (rc == 0) {
		naos_filesets_prepare(fs->sets, fs->set);
		tended = pthread_create(&tending, NULL, tend, fs) == 0;
		set_readahead(options);
		naos_log(NAOS_LOG_INFO, "event=mounted fileset=%s mountpoint=%s mode=%s", fs->set->name, options->mountpoint,
			 fs->shared ? "shared" : "local");
		naos_notify("READY=1");
		if (report >= 0)
			options_report(report, 0);
		serve(fs, signals, &unmounter);
		lock_table_stop(fs);
		transport_stop(fs);
	} else {
		naos_log_error(&err);
		if (fs->session)
			unmount(fs, &unmounter);
	}
	if (tended) {
		wake(&fs->ended_fd);
		naos_filesets_wake(fs->sets);
		(void)pthread_join(tending, NULL);
	}
	unsigned unsealed = content_table_free(fs);
	if (unsealed)
		naos_log(NAOS_LOG_WARNING, "event=unsealed files=%u (they are recovered when they are opened next)", unsealed);
	inode_table_free(fs);
	reopen_free(fs);
	lock_table_free(fs);
	pages_free(fs);
	transport_free(fs);
	if (fs->session)
		fuse_session_destroy(fs->session);
	(void)naos_filesets_close(fs->sets);
	unmounter_end(&unmounter);
	return naos_error_exit_status(rc);
}

int main(int argc, char **argv)
{
	struct options options = { .foreground = false };
	struct naos_error err = NAOS_ERROR_INIT;
	naos_autoconfig struct naos_config *config = NULL;
	const char *config_path = NULL;
	int letter, report = -1;
	harden();
	naos_log_start("naos-fs", NAOS_LOG_WARNING);
	while ((letter = getopt_long(argc, argv, "o:fv", long_options, NULL)) != -1) {
		switch (letter) {
		case 'c':
			config_path = optarg;
			break;
		case 'f':
			options.foreground = true;
			break;
		case 'o':
			options_add(&options, optarg);
			break;
		case 'v':
			naos_log_start("naos-fs", NAOS_LOG_INFO);
			break;
		case 'V':
			(void)puts("naos-fs " NAOS_VERSION);
			return 0;
		case 'h':
			usage();
			return 0;
		default:
			return 2;
		}
	}
	if (argc - optind < 1 || argc - optind > 2) {
		usage();
		return 2;
	}
	options.fileset = argv[optind];
	options.mountpoint = argv[optind + 1];
	struct naos_fs fs = { .root_fd = -1, .root_dir_fd = -1, .proc_fd = -1, .ended_fd = -1 };
	int rc = naos_config_load(config_path, &config, &err);
	if (rc == 0)
		rc = options_read(&options, config, &fs, &err);
	if (rc != 0) {
		naos_log_error(&err);
		return naos_error_exit_status(rc);
	}
	if (!options.foreground && !options_background(&report, &rc))
		return rc;
	identity_prepare(&fs.privileged);
	(void)clock_gettime(CLOCK_REALTIME_COARSE, &fs.started);
	if (!options.allow_other_set)
		options.allow_other = fs.privileged;
	sigset_t set;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	rc = run(&fs, &options, config, signalfd(-1, &set, SFD_CLOEXEC), report);
	if (report >= 0)
		options_report(report, rc);
	return rc;
}
