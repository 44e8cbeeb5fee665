// Package testenv says what a test needs from the machine it runs on.
//
// A test that needs something a fresh machine may lack (the shared fixtures, a
// browser, Python) calls [Need]. Without the thing the test is skipped with a
// line that names it; with HEFT_REQUIRE naming it (a comma separated list, or
// "all") the same test fails, so that CI cannot skip silently.
package testenv

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Need skips t because what is missing, or fails it when HEFT_REQUIRE asks for
// it. It returns at once when ok. why says what to install or set.
func Need(t testing.TB, what string, ok bool, why string) {
	t.Helper()
	if ok {
		return
	}
	if Required(what) {
		t.Fatalf("HEFT_REQUIRE asks for %s: %s", what, why)
	}
	t.Skipf("needs %s: %s", what, why)
}

// Required reports whether HEFT_REQUIRE names what.
func Required(what string) bool {
	list := strings.Split(os.Getenv("HEFT_REQUIRE"), ",")
	return slices.Contains(list, what) || slices.Contains(list, "all")
}

// Variant is the variant of the kernels that HEFT_CPU names, with which golden tests of models
// run; "" is the best one that the processor has.
func Variant() string { return os.Getenv("HEFT_CPU") }
