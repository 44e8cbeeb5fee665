package hostmem

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/heftai/heft/internal/topology"
)

// TestALimitOfTheAddressSpaceIsNamed: with ulimit -v the error was "cannot allocate memory" alone. The limit is set in a
// process of its own, where the runtime has 64 MiB left.
func TestALimitOfTheAddressSpaceIsNamed(t *testing.T) {
	const inside, size = "HEFT_TEST_LIMITED", 1 << 30
	path := filepath.Join(t.TempDir(), "f")
	if os.Getenv(inside) == "" {
		c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		c.Env = append(os.Environ(), inside+"=1")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("the process has not run the test: %s", out)
		}
		return
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	var pages uint64
	statm, _ := os.ReadFile("/proc/self/statm")
	if _, err := fmt.Sscan(string(statm), &pages); err != nil {
		t.Fatal(err)
	}
	limit := pages*uint64(os.Getpagesize()) + 64<<20
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
	if got, left := topology.AddressSpace(os.DirFS("/")); got != int64(limit) || left <= 0 || left > 64<<20 {
		t.Errorf("got a limit of %d with %d left, want %d with at most 64 MiB", got, left, limit)
	}
	var a Arena
	for name, call := range map[string]func() error{
		"Alloc": func() error { _, err := Alloc(nil, KV, size); return err },
		"Arena": func() error { _, err := a.Alloc(KV, size); return err },
		"Map":   func() error { _, err := Map(path); return err },
	} {
		err := call()
		want := fmt.Sprintf("the address space of the process is limited to %d MiB", limit>>20)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ulimit -v unlimited") {
			t.Errorf("%s: got %v, want an error with %q and the way out", name, err, want)
		}
	}
}
