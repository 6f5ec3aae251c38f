/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Verus as a program: an event a line, and what the law says of it. verus.rs, beside this, drives it. */
#include <stdio.h>
#include <string.h>

#include "../../bpf/verus.h"

int main(void)
{
	static struct verus law;
	char line[256];

	while (fgets(line, sizeof(line), stdin)) {
		u64 a[9] = { 0 };

		sscanf(line + 1, "%llu %llu %llu %llu %llu %llu %llu %llu %llu", a, a + 1, a + 2, a + 3, a + 4, a + 5,
		       a + 6, a + 7, a + 8);
		switch (line[0]) {
		case 's':
			memset(&law, 0, sizeof(law));
			verus_start(&law, a[0], a[1], a[2]);
			break;
		case 'a': {
			struct answer answer = { a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8] };

			verus_on_answer(&law, &answer);
			break;
		}
		case 't':
			verus_on_timeout(&law, a[0]);
			break;
		default:
			return 1;
		}
		printf("%llu %llu %llu %llu %llu %llu %d %llu\n", law.window, verus_allowed(&law), verus_pace(&law, 1448),
		       law.estimate, law.delay_min, law.delay_max, law.phase,
		       law.epoch_end);
		fflush(stdout);
	}
	return 0;
}
