package collective

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestPanicsNameTheRank: the panic of a rank ends the process, and says which rank it was and where.
func TestPanicsNameTheRank(t *testing.T) {
	if os.Getenv("TEST_RANK_PANICS") != "" {
		_ = Launch(context.Background(), 3, func(ctx context.Context, c Comm) error {
			if c.Rank() == 2 {
				causeOfThePanic()
			}
			<-ctx.Done()
			return ctx.Err()
		})
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestPanicsNameTheRank$")
	cmd.Env = append(os.Environ(), "TEST_RANK_PANICS=1")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"rank 2 panicked: the cause", "causeOfThePanic"} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: got\n%s\nwant %q", err, out, want)
		}
	}
}

func causeOfThePanic() { panic("the cause") }
