package train

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/heftai/heft/internal/collective/tcp"
)

// processEnd is the output of a process of [processes] and its exit.
type processEnd struct {
	out string
	err error
}

// processes runs a test in n processes of this binary that find each other as train launch's do, and
// waits for them. If something else takes the port in between, all start again at another one.
func processes(t *testing.T, n int, test, env string) []processEnd {
	t.Helper()
	for {
		ends, taken := processesOnce(t, n, test, env)
		if !taken {
			return ends
		}
	}
}

func processesOnce(t *testing.T, n int, test, env string) (ends []processEnd, taken bool) {
	t.Helper()
	port, err := tcp.FreePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan processEnd, n)
	for rank := range n {
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run", "^"+test+"$")
		cmd.Env = append(os.Environ(), env, fmt.Sprint("RANK=", rank), fmt.Sprint("LOCAL_RANK=", rank), fmt.Sprint("WORLD_SIZE=", n),
			"MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port), "HEFT_RUN_TOKEN=secret")
		go func() {
			out, err := cmd.CombinedOutput()
			if bytes.Contains(out, []byte("address already in use")) {
				cancel()
			}
			done <- processEnd{string(out), err}
		}()
	}
	for range n {
		ends = append(ends, <-done)
	}
	return ends, ctx.Err() != nil && t.Context().Err() == nil
}
