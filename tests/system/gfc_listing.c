/* A program as the paper's listing has it: open a frame with two keys, look at the codes, use the buffer.
 * gfc_listing FRAME HEADER-KEY DATA-KEY OUTPUT: the buffer goes to OUTPUT; prints error, warning, bytes, message.
 * SPDX-License-Identifier: Apache-2.0 */
#include <naos/gfc.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	DecryptorContext *ctx = gfc_context_create((size_t)64 << 20, (size_t)64 << 20);
	FitsOperationResult res = gfc_decrypt_frame(ctx, argv[1], argv[2], argv[3]);
	printf("%d %d %zu %s\n", res.error_code, res.warning_code, res.buffer_size, res.error_message);
	if (res.data_buffer) {
		FILE *out = fopen(argv[4], "wb");
		if (!out || fwrite(res.data_buffer, 1, res.buffer_size, out) != res.buffer_size || fclose(out) != 0)
			return 1;
	}
	free_fits_operation_result(&res);
	free_fits_operation_result(&res);
	gfc_context_destroy(ctx);
	return 0;
}
