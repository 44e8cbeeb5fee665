//go:build soak

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/heftai/heft/internal/testenv"
)

// TestRandomSoak serves pairs of random models with random flags, at limits from the minimum to some
// MiB more, while the soft limit walks and the disk fails. A fifth of the requests is dropped by
// their clients. All other requests must have the answers of a server without limit, or, while reads
// fail, an error; memory must stay within the limit. scripts/soak-random.sh runs it.
func TestRandomSoak(t *testing.T) {
	length, err := time.ParseDuration(environment("SOAK_TIME", "150s"))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(environment("SOAK_SEED", fmt.Sprint(time.Now().Unix())), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	rounds, _ := strconv.Atoi(environment("SOAK_ROUNDS", "1000000"))
	total := tally{}
	for begin, i := time.Now(), 0; time.Since(begin) < length && i < rounds && !t.Failed(); i++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { soakRound(t, seed, total) })
		seed++
	}
	for _, kind := range []string{"completion", "several prompts", "several choices", "grammar", "batch", "prompt's probabilities"} {
		if total[kind] == 0 && rounds > 3 {
			t.Errorf("no answer of the kind %q", kind)
		}
	}
	t.Logf("%v", total)
}

// A tally counts what happened.
type tally map[string]int

// loraRoom is the memory of adapters of a soak.
const loraRoom = 2 * mib

// A soakSetup is what a round serves, and how.
type soakSetup struct {
	models []*soakModel
	shelf  string   // of adapters
	same   []string // flags that change answers
	flags  []string // flags that do not
	group  string   // control group, if its soft limit walks
	least  int64    // the larger minimum of the two models
	limit  int64
}

func soakRound(t *testing.T, seed uint64, total tally) {
	r := rand.New(rand.NewPCG(seed, 1))
	s := randomSetup(t, r)
	questions := makeQuestions(r, s.models, 30+r.IntN(30))
	s.answer(t, questions)
	f := &faults{file: filepath.Join(t.TempDir(), "faults"), weights: weightFiles(t, s.models), counts: tally{}}
	f.set(t, disk{})
	t.Setenv(faultFile, f.file)
	p := startBy(t, s.by(), append(s.args(t), "--max-memory", fmt.Sprintf("cpu=%dKiB", s.limit>>10))...)
	done := false
	defer func() {
		if !done {
			_ = p.Process.Signal(syscall.SIGQUIT) // show the goroutines
			<-p.end
		}
		if keep := os.Getenv("SOAK_LOG"); keep != "" {
			_ = os.WriteFile(keep, p.log.Bytes(), 0o600)
		}
		if t.Failed() {
			t.Logf("%+v\n%s", *s, tailOf(p.log.String(), 20000))
		}
	}()
	stop := sample(p.Process.Pid)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(3+r.IntN(4))*time.Second)
	defer cancel()
	var side sync.WaitGroup
	side.Go(func() { f.run(ctx, t, rand.New(rand.NewPCG(seed, 2))) })
	if s.group != "" {
		side.Go(func() { s.walk(ctx, t, p, rand.New(rand.NewPCG(seed, 3))) })
	}
	counts := soakClients(ctx, t, p, questions, f, seed)
	side.Wait()
	for _, q := range questions { // the disk is well again
		if !t.Failed() {
			a := q.put(p.url, 0)
			for end := time.Now().Add(retried); a.status == http.StatusServiceUnavailable && time.Now().Before(end); a = q.put(p.url, 0) {
				time.Sleep(100 * time.Millisecond)
			}
			q.check(t, a, "after all faults")
		}
	}
	if most := stop(); most == 0 || most > s.limit {
		t.Errorf("%d KiB of anonymous memory, the limit is %d KiB", most>>10, s.limit>>10)
	}
	if !t.Failed() {
		done = soakEnd(t, p)
	}
	for kind, n := range counts {
		total[kind] += n
	}
	for kind, n := range f.counts {
		total[kind] += n
	}
}

// tailOf returns the end of a text.
func tailOf(text string, n int) string { return text[max(0, len(text)-n):] }

// randomSetup chooses models, flags and a limit.
func randomSetup(t *testing.T, r *rand.Rand) *soakSetup {
	s := &soakSetup{shelf: t.TempDir(), same: []string{"--precision", "high"}}
	kinds := []string{"dense", "windows", "experts", "latent"}
	for _, name := range []string{"one", "two"} {
		if r.IntN(3) == 0 {
			s.models = append(s.models, fixtureModel(t, r, name))
		} else {
			s.models = append(s.models, madeModel(t, r, kinds[r.IntN(len(kinds))], name, s.shelf))
		}
	}
	pick := func(to *[]string, flag string, values ...string) {
		if v := values[r.IntN(len(values))]; v != "" {
			*to = append(*to, flag+"="+v)
		}
	}
	if s.models[0].texts && s.models[1].texts && r.IntN(3) == 0 { // fixtures may have nothing to convert
		s.same = append(s.same, "--quantize=q8_0")
	} else {
		pick(&s.flags, "--compress", "", "exact", "none")
	}
	pick(&s.flags, "--device-map", "auto", "auto", "auto", "disk")
	pick(&s.flags, "--max-batch", "", "", "1", "3")
	pick(&s.flags, "--threads", "1", "2", "3")
	pick(&s.flags, "--lazy", "true", "false")
	pick(&s.flags, "--kv-store", "", t.TempDir(), testenv.SmallDisk(t, 256<<10))
	pick(&s.flags, "--cache-dir", t.TempDir(), testenv.SmallDisk(t, 64<<10), testenv.SmallDisk(t, 4<<20), "none")
	for _, m := range s.models {
		s.least = max(s.least, leastOf(t, m, append(s.same, s.flags...)))
	}
	s.least += loraRoom
	s.limit = s.least + r.Int64N(12*mib)&^4095
	if r.IntN(2) == 0 {
		group, err := memoryGroup(1 << 30)
		testenv.Need(t, "cgroup", err == nil, "the right to make a control group with a memory limit")
		t.Cleanup(func() { _ = os.Remove(group) })
		s.group = group
	}
	return s
}

// leastOf returns the minimum of a model.
func leastOf(t *testing.T, m *soakModel, flags []string) int64 {
	args := []string{"plan", m.dir, "--json", "--no-probe", "--max-memory", "cpu=1MiB"}
	for _, flag := range flags {
		if !strings.HasPrefix(flag, "--lazy") && !strings.HasPrefix(flag, "--kv-store") {
			args = append(args, flag)
		}
	}
	status, out, stderr := invoke(args...)
	var plan struct {
		Least int64 `json:"least_bytes"`
	}
	if err := json.Unmarshal([]byte(out), &plan); err != nil || status != 0 || plan.Least == 0 {
		t.Fatalf("serve %v: status %d, %v: %s %s", args, status, err, out, stderr)
	}
	return plan.Least
}

// by returns the command that starts the server in its control group.
func (s *soakSetup) by() []string {
	if s.group == "" {
		return nil
	}
	return []string{"sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$@"`, s.group}
}

// serve returns the flags that name the models and adapters, and have a store of their own.
func (s *soakSetup) serve(t *testing.T) []string {
	args := append([]string{"--lora-dir", s.shelf, fmt.Sprintf("--lora-memory=%dMiB", loraRoom/mib), "--store", t.TempDir()}, s.same...)
	for _, m := range s.models {
		args = append(args, "--model", m.name+"="+m.dir)
	}
	return args
}

func (s *soakSetup) args(t *testing.T) []string { return append(s.serve(t), s.flags...) }

// answer asks a server without limit.
func (s *soakSetup) answer(t *testing.T, questions []*question) {
	p := startBy(t, nil, append(s.serve(t), "--max-memory", "cpu=2GiB", "--cache-dir", t.TempDir())...)
	defer func() { _ = p.Process.Kill(); <-p.end }()
	for _, q := range questions {
		a := q.put(p.url, 0)
		if a.err != nil {
			text, _ := json.Marshal(q.bodies)
			t.Fatalf("%s: %v\n%s\n%s", q.kind, a.err, text, tailOf(p.log.String(), 4000))
		}
		q.want = a.answer
	}
}

// soakClients asks questions until ctx ends and all are answered.
func soakClients(ctx context.Context, t *testing.T, p *process, questions []*question, f *faults, seed uint64) tally {
	var mu sync.Mutex
	counts := tally{}
	var clients sync.WaitGroup
	for i := range 6 {
		r := rand.New(rand.NewPCG(seed, 10+uint64(i)))
		clients.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				q, cancel := questions[r.IntN(len(questions))], time.Duration(0)
				if r.IntN(5) == 0 {
					cancel = time.Duration(1+r.IntN(60)) * time.Millisecond
				}
				begin := time.Now()
				a := q.put(p.url, cancel)
				kind := q.kind
				switch {
				case errors.Is(a.err, errCancelled):
					kind = "cancelled"
				case a.err != nil && a.status >= 500 && f.excuses(begin, a.err):
					kind = "failed"
				case a.err != nil && a.status == 0 && q.stream && f.excuses(begin, a.err) && strings.Contains(a.err.Error(), "error in an answer"):
					kind = "failed"
				default:
					q.check(t, a, fmt.Sprint("client ", i))
				}
				mu.Lock()
				counts[kind]++
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	return counts
}

// check compares an answer with that of the server without limit.
func (q *question) check(t *testing.T, a asked, when string) {
	text, _ := json.Marshal(q.bodies)
	switch {
	case a.err != nil:
		t.Errorf("%s: %s: %v\n%s", when, q.kind, a.err, text)
	case a.answer != q.want:
		t.Errorf("%s: %s: got\n%swant\n%s%s", when, q.kind, a.answer, q.want, text)
	}
}

// walk moves the soft limit between the minimum and the limit. Three seconds after each step
// anonymous memory is below it.
func (s *soakSetup) walk(ctx context.Context, t *testing.T, p *process, r *rand.Rand) {
	defer softLimit(t, s.group, 1<<40)
	for ctx.Err() == nil && !t.Failed() {
		soft := s.least + r.Int64N(s.limit-s.least+mib)
		softLimit(t, s.group, soft)
		begin := time.Now()
		var within time.Duration
		for pause := time.Duration(r.IntN(1500)) * time.Millisecond; time.Since(begin) < pause && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			if held := anonymous(p.Process.Pid); held > soft {
				if within = time.Since(begin); within > 3*time.Second {
					t.Errorf("%d KiB of anonymous memory %v after the soft limit became %d KiB", held>>10, within, soft>>10)
					return
				}
			}
		}
	}
}

// soakEnd checks that nothing runs any more, and ends the server.
func soakEnd(t *testing.T, p *process) (ended bool) {
	for running, end := true, time.Now().Add(10*time.Second); running; time.Sleep(20 * time.Millisecond) {
		code, metrics := p.get(t, "/metrics")
		if code != http.StatusOK {
			t.Errorf("/metrics: %d", code)
			return false
		}
		running = metric(metrics, `vllm:num_requests_running{.*}`) > 0 || metric(metrics, `vllm:num_requests_waiting{.*}`) > 0
		if time.Now().After(end) {
			t.Errorf("requests are still running or waiting: %s", metrics)
			return false
		}
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
		return false
	}
	select {
	case err := <-p.end:
		if err != nil || strings.Contains(p.log.String(), "panic") {
			t.Errorf("serve ended with %v", err)
		}
		return true
	case <-time.After(time.Minute):
		t.Error("serve still runs a minute after SIGTERM")
		return false
	}
}
