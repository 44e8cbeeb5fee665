// Package fetchtest runs the tests of kernels with several fetch plans. A [fetch.Plan] selects
// one form of each kernel. [Plans] returns plans that together select all forms, and [Main] runs
// a package's tests with the default plan and two others.
package fetchtest

import (
	"flag"
	"fmt"
	"testing"

	"github.com/heftai/heft/internal/kernels/fetch"
)

// Plans returns plans that together select all forms of all kernels. Plan i has pattern i of
// every role, or the last one for roles with fewer patterns.
func Plans() []fetch.Plan {
	most := 0
	for r := range fetch.Roles {
		most = max(most, len(fetch.Candidates(r)))
	}
	plans := make([]fetch.Plan, most)
	for i := range plans {
		for r := range fetch.Roles {
			c := fetch.Candidates(r)
			plans[i][r] = c[min(i, len(c)-1)]
		}
	}
	return plans
}

// Main implements TestMain for a package with kernels. It runs all tests with the default plan,
// then with plans of 4 rows without prefetch and of 1 row with near prefetch, and returns the
// exit status. Benchmarks run only with the default plan.
func Main(m *testing.M) int {
	if code := m.Run(); code != 0 || flag.Lookup("test.bench").Value.String() != "" || flag.Lookup("test.list").Value.String() != "" {
		return code
	}
	defer fetch.Use(fetch.Current())
	plans := Plans()
	for _, p := range []fetch.Plan{plans[4], plans[len(plans)-1]} {
		fetch.Use(p)
		if code := m.Run(); code != 0 {
			fmt.Printf("the tests above ran with the fetch plan %v\n", p)
			return code
		}
	}
	return 0
}
