/* Telling systemd how a daemon does: the protocol of sd_notify(3), one datagram.  SPDX-License-Identifier: Apache-2.0 */
#ifndef NAOS_BASE_NOTIFY_H
#define NAOS_BASE_NOTIFY_H

/* "READY=1", "STOPPING=1", …; does nothing where systemd did not ask for it. */
void naos_notify(const char *text);

#endif
