/* The cost model with fixed rates: what it chooses, and where it changes its mind; the file of rates.  No GPU is needed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine_helper.h"

#include <math.h>
#include <sys/stat.h>

#include "engine/cost.h"

#define GB 1e9
#define IMAGE ((uint64_t)604000000)

/* An H200 on a host with 16 cores, in round figures; the bus as wide as it is, and processors that never are what limits it. */
static const struct naos_cost_rates machine = {
	.cpu_bytes_s = { 12 * GB, 10.5 * GB }, .cpu_all_bytes_s = { 192 * GB, 168 * GB }, .memory_bytes_s = 400 * GB,
	.cores = 16, .gpu = true,
	.kernel_bytes_s = { { 630 * GB, 479 * GB }, { 531 * GB, 364 * GB } }, .up_bytes_s = 55 * GB, .down_bytes_s = 55 * GB,
	.both_bytes_s = 47 * GB, .stage_bytes_s = 1000 * GB, .fixed_s = 40e-6, .start_s = 0.4,
};

static struct naos_cost predict(const struct naos_cost_rates *rates, uint64_t bytes, unsigned cores, enum naos_cost_place from,
				enum naos_cost_place to, enum naos_gpu_use use)
{
	const struct naos_cost_work work = { .algorithm = NAOS_AES_128_GCM, .bytes = bytes, .from = from, .to = to, .cores = cores,
					     .gpu_started = true };
	struct naos_cost cost;
	naos_cost_predict(rates, &work, use, &cost);
	assert_non_null(cost.why);
	return cost;
}

static struct naos_cost host(const struct naos_cost_rates *rates, uint64_t bytes, unsigned cores)
{
	return predict(rates, bytes, cores, NAOS_COST_HOST, NAOS_COST_HOST, NAOS_GPU_AUTO);
}

static void assert_about(double seconds, double expected_ms)
{
	if (fabs(seconds * 1e3 - expected_ms) > 0.05 * expected_ms)
		fail_msg("%.3f ms, not %.3f ms", seconds * 1e3, expected_ms);
}

static void from_host_to_host_five_cores_beat_the_bus(void **state)
{
	for (unsigned cores = 1; cores <= 3; cores++)
		assert_true(host(&machine, IMAGE, cores).gpu);
	for (unsigned cores = 5; cores <= 16; cores++)
		assert_false(host(&machine, IMAGE, cores).gpu);
	assert_about(host(&machine, IMAGE, 1).cpu_s, 50.3);
	assert_about(host(&machine, IMAGE, 4).cpu_s, 12.6);
	assert_about(host(&machine, IMAGE, 1).gpu_s, 13.05);
	assert_false(host(&machine, IMAGE, 0).gpu); /* all of this process */
}

static void small_work_stays_with_the_cpu(void **state)
{
	assert_false(host(&machine, 4096, 1).gpu);
	assert_false(host(&machine, 65536, 1).gpu);
	assert_true(host(&machine, (uint64_t)16 << 20, 1).gpu);
	/* many cores do not share one segment */
	assert_true(host(&machine, (uint64_t)1 << 20, 16).cpu_s == host(&machine, (uint64_t)1 << 20, 1).cpu_s);
}

static void a_gpu_that_must_be_started_has_to_win_that_time_back(void **state)
{
	struct naos_cost cost;
	struct naos_cost_work work = { .algorithm = NAOS_AES_128_GCM, .bytes = IMAGE, .cores = 1 };
	naos_cost_predict(&machine, &work, NAOS_GPU_AUTO, &cost);
	assert_false(cost.gpu);
	work.bytes = 40 * IMAGE;
	naos_cost_predict(&machine, &work, NAOS_GPU_AUTO, &cost);
	assert_true(cost.gpu);
}

static void into_the_device_it_is_the_gpu(void **state)
{
	for (unsigned cores = 1; cores <= 16; cores += 15) {
		struct naos_cost cost = predict(&machine, IMAGE, cores, NAOS_COST_HOST, NAOS_COST_DEVICE, NAOS_GPU_AUTO);
		assert_true(cost.gpu);
		assert_about(cost.gpu_s, 11.1);
		assert_true(predict(&machine, 4096, cores, NAOS_COST_HOST, NAOS_COST_DEVICE, NAOS_GPU_AUTO).gpu);
	}
	/* the CPU, and a copy behind it */
	assert_about(predict(&machine, IMAGE, 2, NAOS_COST_HOST, NAOS_COST_DEVICE, NAOS_GPU_AUTO).cpu_s, 25.2);
	assert_about(predict(&machine, IMAGE, 16, NAOS_COST_HOST, NAOS_COST_DEVICE, NAOS_GPU_AUTO).cpu_s, 11.06);
	/* within the device */
	assert_about(predict(&machine, IMAGE, 16, NAOS_COST_DEVICE, NAOS_COST_DEVICE, NAOS_GPU_AUTO).gpu_s, 1.0);
	assert_about(predict(&machine, IMAGE, 16, NAOS_COST_DEVICE, NAOS_COST_HOST, NAOS_GPU_AUTO).gpu_s, 11.1);
}

/* Measured with pageable memory: 8 GB/s for one reader, 46 for eight. */
static void readers_limit_what_comes_from_ordinary_memory(void **state)
{
	struct naos_cost_rates rates = machine;
	rates.stage_bytes_s = 8 * GB;
	assert_about(predict(&rates, IMAGE, 1, NAOS_COST_HOST, NAOS_COST_DEVICE, NAOS_GPU_AUTO).gpu_s, 75.6);
	assert_about(predict(&rates, IMAGE, 16, NAOS_COST_HOST, NAOS_COST_DEVICE, NAOS_GPU_AUTO).gpu_s, 11.1);
	assert_false(host(&rates, IMAGE, 1).gpu); /* one core seals faster than it copies twice */
}

static void memory_limits_the_cores(void **state)
{
	struct naos_cost_rates rates = machine;
	rates.memory_bytes_s = 61 * GB;
	assert_about(host(&rates, IMAGE, 16).cpu_s, 9.9);
	assert_about(host(&rates, IMAGE, 6).cpu_s, 9.9);
	assert_about(host(&rates, (uint64_t)16 << 20, 4).cpu_s, 0.350); /* but not in their caches */
	rates.cpu_all_bytes_s[0] = 24 * GB;
	assert_about(host(&rates, IMAGE, 16).cpu_s, 25.2);
}

static void sealing_and_the_algorithm_have_rates_of_their_own(void **state)
{
	struct naos_cost cost;
	struct naos_cost_work work = { .algorithm = NAOS_AES_256_GCM, .sealing = true, .bytes = IMAGE, .from = NAOS_COST_DEVICE,
				       .to = NAOS_COST_DEVICE, .gpu_started = true };
	naos_cost_predict(&machine, &work, NAOS_GPU_AUTO, &cost);
	assert_about(cost.gpu_s, 1.70);
	work.sealing = false;
	naos_cost_predict(&machine, &work, NAOS_GPU_AUTO, &cost);
	assert_about(cost.gpu_s, 1.30);
	work.from = work.to = NAOS_COST_HOST;
	work.cores = 1;
	naos_cost_predict(&machine, &work, NAOS_GPU_AUTO, &cost);
	assert_about(cost.cpu_s, 57.5);
}

static void what_is_demanded_is_done(void **state)
{
	assert_true(predict(&machine, 4096, 16, NAOS_COST_HOST, NAOS_COST_HOST, NAOS_GPU_ALWAYS).gpu);
	assert_false(predict(&machine, IMAGE, 1, NAOS_COST_HOST, NAOS_COST_HOST, NAOS_GPU_NEVER).gpu);
	assert_false(predict(&machine, IMAGE, 1, NAOS_COST_HOST, NAOS_COST_DEVICE, NAOS_GPU_NEVER).gpu);
}

static void without_a_gpu_it_is_the_cpu(void **state)
{
	struct naos_cost_rates rates = machine;
	rates.gpu = false;
	struct naos_cost cost = host(&rates, IMAGE, 1);
	assert_true(!cost.gpu && isinf(cost.gpu_s) && isfinite(cost.cpu_s));
	cost = predict(&rates, IMAGE, 1, NAOS_COST_HOST, NAOS_COST_DEVICE, NAOS_GPU_AUTO);
	assert_true(!cost.gpu && isinf(cost.gpu_s) && isinf(cost.cpu_s));
}

/* --- measured rates and their file ----------------------------------------------------------------------------------------- */

static void rates_are_measured_once(void **state)
{
	struct naos_cost_rates first, second;
	assert_ok(naos_cost_rates(false, &first, &err), &err);
	assert_ok(naos_cost_rates(false, &second, &err), &err);
	assert_memory_equal(&first, &second, sizeof(first));
	assert_int_equal(first.cores, naos_cost_cores());
	for (unsigned a = 0; a < 2; a++) /* no machine is slower than 1 MB/s, or faster than 10 TB/s */
		assert_true(first.memory_bytes_s > 1e6 && first.memory_bytes_s < 1e13 && first.cpu_bytes_s[a] > 1e6 &&
			    first.cpu_all_bytes_s[a] > 1e6 && first.cpu_all_bytes_s[a] < 1e13);
}

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void the_file_keeps_the_rates_of_this_machine_only(void **state)
{
	char folder[] = "/tmp/naos-cost-XXXXXX", path[64], text[2000];
	struct naos_cost_rates none = { .cores = 3 }, read = none;
	assert_non_null(mkdtemp(folder));
	assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
	assert_true(naos_cost_file(path, sizeof(path)));
	assert_null(strstr(path, "/../"));
	assert_false(naos_cost_load(path, "this", &read));
	naos_cost_save(path, "this", &machine);
	assert_true(naos_cost_load(path, "this", &read));
	assert_true(read.gpu && read.cores == 3 && read.kernel_bytes_s[1][1] == machine.kernel_bytes_s[1][1] &&
		    read.start_s == machine.start_s && read.both_bytes_s == machine.both_bytes_s);
	read = none;
	assert_false(naos_cost_load(path, "another", &read));
	assert_false(naos_cost_load(path, "thi", &read));
	/* cut off anywhere, or with a number that is none: as if there were no file */
	FILE *file = fopen(path, "r");
	const size_t bytes = fread(text, 1, sizeof(text) - 1, file);
	(void)fclose(file);
	text[bytes] = 0;
	char *last = strstr(text, "start ");
	assert_non_null(last);
	static const char *const wrong[] = { "start -1\n", "start inf\n", "start nan\n", "start x\n", "begin 1\n", "" };
	for (size_t i = 0; i < NAOS_ARRAY_LENGTH(wrong); i++) {
		(void)snprintf(last, sizeof(text) - (size_t)(last - text), "%s", wrong[i]);
		write_text(path, text);
		assert_false(naos_cost_load(path, "this", &read));
	}
	assert_memory_equal(&read, &none, sizeof(read));
	assert_int_equal(unlink(path), 0);
	*strrchr(path, '/') = 0;
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(from_host_to_host_five_cores_beat_the_bus),
		cmocka_unit_test(small_work_stays_with_the_cpu),
		cmocka_unit_test(a_gpu_that_must_be_started_has_to_win_that_time_back),
		cmocka_unit_test(into_the_device_it_is_the_gpu),
		cmocka_unit_test(readers_limit_what_comes_from_ordinary_memory),
		cmocka_unit_test(memory_limits_the_cores),
		cmocka_unit_test(sealing_and_the_algorithm_have_rates_of_their_own),
		cmocka_unit_test(what_is_demanded_is_done),
		cmocka_unit_test(without_a_gpu_it_is_the_cpu),
		cmocka_unit_test(rates_are_measured_once),
		cmocka_unit_test(the_file_keeps_the_rates_of_this_machine_only),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
