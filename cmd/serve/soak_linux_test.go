//go:build soak

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heftai/heft/internal/testenv"
)

// environment returns a variable's value, or another one if it is not set.
func environment(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// TestSoakUnderPressure runs a mixed load in a control group whose soft limit walks at random; the
// hard limit follows 5 seconds later. Three seconds after each step anonymous memory must be under
// the soft limit, and no request may fail. scripts/soak-pressure.sh runs it.
func TestSoakUnderPressure(t *testing.T) {
	length, err := time.ParseDuration(environment("SOAK_TIME", "10m"))
	if err != nil {
		t.Fatal(err)
	}
	longest = length + 10*time.Minute
	least, _ := strconv.ParseInt(environment("SOAK_LEAST_MIB", "230"), 10, 64)
	most, _ := strconv.ParseInt(environment("SOAK_MOST_MIB", "720"), 10, 64)
	group, err := memoryGroup(1 << 30)
	testenv.Need(t, "cgroup", err == nil, "the right to make a control group with a memory limit")
	t.Cleanup(func() { _ = os.Remove(group) })
	model := os.Getenv("SOAK_MODEL")
	if model == "" {
		model = weightyFolder(t)
	}
	p := soaked(t, group, model)
	defer func() { _ = p.Process.Kill(); <-p.end }()
	c := client{answers: map[string]string{}}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	var streams, dropped atomic.Int64
	var clients sync.WaitGroup
	for i := range 3 {
		clients.Go(func() {
			for n := i; ctx.Err() == nil && !t.Failed(); n++ {
				c.ask(t, p.url, n%8)
			}
		})
	}
	clients.Go(func() {
		for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
			soakStream(t, p.url, n, n%4 == 3)
			if streams.Add(1); n%4 == 3 {
				dropped.Add(1)
			}
		}
	})
	steps, worst := soakWalk(ctx, t, group, p, least*mib, most*mib)
	cancel()
	clients.Wait()
	softLimit(t, group, 1<<40)
	hardLimit(t, group, 1<<40)
	slices.Sort(worst)
	t.Logf("%d steps, %d requests, %d streams (%d of them dropped by the client)", steps, c.count, streams.Load(), dropped.Load())
	if len(worst) > 0 {
		t.Logf("time until anonymous memory was under the soft limit, when that had fallen below it: median %v, most %v, of %d", worst[len(worst)/2], worst[len(worst)-1], len(worst))
	}
	for _, line := range strings.Split(p.log.String(), "\n") {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Log(line)
		}
	}
}

// soaked starts the server in the group and waits until its weights are in memory.
func soaked(t *testing.T, group, model string) *process {
	args := append([]string{"--model", model, "--max-memory", "cpu=" + environment("SOAK_LIMIT", "700MiB"), "--threads", environment("SOAK_THREADS", "2")},
		strings.Fields(os.Getenv("SOAK_FLAGS"))...)
	p := startBy(t, []string{"sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$@"`, group}, args...)
	for code := 0; code != http.StatusOK; time.Sleep(50 * time.Millisecond) {
		code, _ = p.get(t, "/ready")
	}
	return p
}

// soakWalk moves the limits until ctx ends. It returns the number of steps, and how long memory was
// over the soft limit after each step that began so.
func soakWalk(ctx context.Context, t *testing.T, group string, p *process, least, most int64) (steps int, over []time.Duration) {
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	soft := most
	defer func() { t.Logf("the limit walked between %d and %d MiB", least/mib, most/mib) }()
	for ctx.Err() == nil && !t.Failed() {
		if soft = least + r.Int64N(most-least); r.IntN(3) == 0 {
			soft = []int64{least, most}[r.IntN(2)]
		}
		if now, _ := os.ReadFile(group + "/memory.limit_in_bytes"); len(now) > 0 {
			if hard, _ := strconv.ParseInt(strings.TrimSpace(string(now)), 10, 64); hard < soft {
				hardLimit(t, group, soft)
			}
		}
		begin, before := time.Now(), anonymous(p.Process.Pid)
		softLimit(t, group, soft)
		steps++
		within := time.Duration(0)
		for time.Since(begin) < 5*time.Second {
			time.Sleep(20 * time.Millisecond)
			switch held := anonymous(p.Process.Pid); {
			case held == 0:
				t.Errorf("the server is gone")
				return steps, over
			case held >= soft:
				if within = time.Since(begin); within > 3*time.Second {
					t.Errorf("step %d: %d MiB of anonymous memory after %v, the soft limit is %d MiB", steps, held/mib, within, soft/mib)
					return steps, over
				}
			}
		}
		if before >= soft {
			over = append(over, within)
		}
		hardLimit(t, group, soft)
		time.Sleep(time.Duration(1+r.IntN(4)) * time.Second)
	}
	return steps, over
}

// soakStream reads a stream to its end, or drops it after a while.
func soakStream(t *testing.T, url string, n int, drop bool) {
	prompt := make([]string, 10+n*53%300)
	for i := range prompt {
		prompt[i] = strconv.Itoa((i*11 + n) % 997)
	}
	body := fmt.Sprintf(`{"prompt":[%s],"max_tokens":24,"ignore_eos":true,"stream":true,"n":2}`, strings.Join(prompt, ","))
	answer, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Errorf("stream failed: %v", err)
		return
	}
	defer answer.Body.Close()
	if drop {
		_, _ = io.ReadFull(answer.Body, make([]byte, 600))
		return
	}
	b, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(b), "[DONE]") || strings.Contains(string(b), `"error"`) {
		t.Errorf("stream failed: %v, status %d: %.300s", err, answer.StatusCode, b)
	}
}
