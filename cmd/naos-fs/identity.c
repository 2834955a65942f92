/* SPDX-License-Identifier: Apache-2.0 */
#include "identity.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static uid_t own_user;
static gid_t own_group;
static bool privileged;

static bool change_capabilities(struct __user_cap_data_struct data[static 2])
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	return syscall(SYS_capset, &header, data) == 0;
}

void identity_prepare(bool *ret_privileged)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };
	own_user = geteuid();
	own_group = getegid();
	const uint32_t needed = 1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER | 1u << CAP_CHOWN;
	if (syscall(SYS_capget, &header, data) == 0 && (data[0].permitted & needed) == needed &&
	    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) == 0) {
		const uint32_t resource = 1u << CAP_SYS_RESOURCE;
		privileged = true;
		data[0].effective = data[0].permitted & ~resource;
		data[1].effective = data[1].permitted;
		data[0].permitted &= ~resource;
		data[0].inheritable &= ~resource;
		(void)change_capabilities(data);
	}
	*ret_privileged = privileged;
}

void identity_start_thread(void)
{
	if (unshare(CLONE_FS) == 0)
		(void)umask(0);
}

/* Supplementary groups of this thread alone: glibc's setgroups would set those of all. */
static void take_groups(fuse_req_t req)
{
	gid_t groups[1024];
	int count = fuse_req_getgroups(req, (int)NAOS_ARRAY_LENGTH(groups), groups);
	if (count >= 0 && count <= (int)NAOS_ARRAY_LENGTH(groups))
		(void)syscall(SYS_setgroups, (size_t)count, groups);
}

struct identity identity_enter(fuse_req_t req, bool groups)
{
	const struct fuse_ctx *user = fuse_req_ctx(req);
	struct identity identity = { .entered = privileged };
	identity.umask = user->umask;
	if (identity.umask)
		(void)umask(identity.umask);
	if (!privileged)
		return identity;
	if (user->uid == own_user && user->gid == own_group && !groups) {
		identity.entered = false;
		return identity;
	}
	if (groups) {
		identity.groups = true;
		take_groups(req);
	}
	(void)setfsgid(user->gid);
	(void)setfsuid(user->uid);
	return identity;
}

void identity_leave(struct identity *identity)
{
	int saved = errno;
	if (identity->umask)
		(void)umask(0);
	if (identity->entered) {
		(void)setfsuid(own_user);
		(void)setfsgid(own_group);
		if (identity->groups)
			(void)syscall(SYS_setgroups, (size_t)0, NULL);
	}
	errno = saved;
}

bool identity_in_group(fuse_req_t req, gid_t group)
{
	gid_t groups[1024];
	const struct fuse_ctx *user = fuse_req_ctx(req);
	int count = fuse_req_getgroups(req, (int)NAOS_ARRAY_LENGTH(groups), groups);
	for (int i = 0; i < count && i < (int)NAOS_ARRAY_LENGTH(groups); i++)
		if (groups[i] == group)
			return true;
	return user->gid == group;
}
