/* mpi_records A B BLOCK COUNT HOW: ranks of an MPI program write one file, the first half of them by way of path A, the others by way
 * of path B (the same file on two mounts), each its own blocks of a strided view; then each reads all of it by way of the other path
 * and compares.  HOW is collective (every rank an aggregator) or independent (ROMIO then reads, changes and writes under fcntl locks
 * what lies between the blocks, too).  SPDX-License-Identifier: Apache-2.0 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void stop(const char *what, int rc)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int length;
	(void)MPI_Error_string(rc, text, &length);
	(void)fprintf(stderr, "mpi_records: %s: %s\n", what, text);
	(void)MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(int rc, const char *what)
{
	if (rc != MPI_SUCCESS)
		stop(what, rc);
}

static unsigned char value(int rank, int block, int at)
{
	return (unsigned char)(rank * 61 + block * 7 + at % 251 + 1);
}

int main(int argc, char **argv)
{
	int rank, ranks;
	(void)MPI_Init(&argc, &argv);
	(void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	(void)MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 6)
		stop("usage: mpi_records A B BLOCK COUNT HOW", MPI_ERR_ARG);
	const int collective = strcmp(argv[5], "collective") == 0;
	const int half = rank >= ranks / 2, block = atoi(argv[3]), count = atoi(argv[4]), bytes = block * count;
	unsigned char *mine = malloc((size_t)bytes), *all = malloc((size_t)bytes * (size_t)ranks);
	if (!mine || !all)
		stop("no memory", MPI_ERR_NO_MEM);
	for (int i = 0; i < count; i++)
		for (int at = 0; at < block; at++)
			mine[i * block + at] = value(rank, i, at);

	MPI_File file; /* opened by all together: the standard asks for names that mean the same file, not for equal ones */
	MPI_Datatype view;
	MPI_Info hints;
	(void)MPI_Info_create(&hints);
	(void)MPI_Info_set(hints, "cb_config_list", "*:4");
	(void)MPI_Info_set(hints, "cb_nodes", "4");
	(void)MPI_Info_set(hints, "cb_buffer_size", "65536");
	(void)MPI_Info_set(hints, "num_aggregators", "4");
	const int sizes[1] = { block * ranks * count };
	check(MPI_File_open(MPI_COMM_WORLD, argv[1 + half], MPI_MODE_CREATE | MPI_MODE_RDWR, hints, &file), "opening for writing");
	check(MPI_Type_vector(count, block, block * ranks, MPI_BYTE, &view), "the type of the view");
	check(MPI_Type_commit(&view), "the type of the view");
	check(MPI_File_set_view(file, (MPI_Offset)rank * block, MPI_BYTE, view, "native", MPI_INFO_NULL), "setting the view");
	(void)MPI_Barrier(MPI_COMM_WORLD);
	if (collective)
		check(MPI_File_write_at_all(file, 0, mine, bytes, MPI_BYTE, MPI_STATUS_IGNORE), "the collective write");
	else
		check(MPI_File_write_at(file, 0, mine, bytes, MPI_BYTE, MPI_STATUS_IGNORE), "the independent write");
	check(MPI_File_close(&file), "closing");
	(void)MPI_Barrier(MPI_COMM_WORLD);

	check(MPI_File_open(MPI_COMM_WORLD, argv[2 - half], MPI_MODE_RDONLY, MPI_INFO_NULL, &file), "opening for reading");
	MPI_Offset size;
	check(MPI_File_get_size(file, &size), "the size");
	check(MPI_File_read_at_all(file, 0, all, sizes[0], MPI_BYTE, MPI_STATUS_IGNORE), "the collective read");
	check(MPI_File_close(&file), "closing");
	int wrong = size != sizes[0];
	for (int i = 0; i < count; i++)
		for (int from = 0; from < ranks; from++)
			for (int at = 0; at < block; at++)
				wrong += all[(i * ranks + from) * block + at] != value(from, i, at);
	int sum;
	(void)MPI_Allreduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		(void)printf("%d ranks, %lld bytes, %d wrong\n", ranks, (long long)size, sum);
	free(mine);
	free(all);
	(void)MPI_Type_free(&view);
	(void)MPI_Info_free(&hints);
	(void)MPI_Finalize();
	return sum != 0;
}
