//go:build unix

package hubcache

import (
	"os"
	"os/user"
	"strconv"
	"testing"
)

// TestHomeIsFoundWithoutItsVariable: the cache was then a folder of the working folder.
func TestHomeIsFoundWithoutItsVariable(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	if got := Home(); got != os.Getenv("HOME") {
		t.Errorf("got %q, want %q", got, os.Getenv("HOME"))
	}
	want := ""
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		want = u.HomeDir
	}
	t.Setenv("HOME", "")
	if got := Home(); got != want {
		t.Errorf("without HOME: got %q, want that of the list of users, %q", got, want)
	}
}
