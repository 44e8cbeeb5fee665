package limit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// TestControlGroupsOfBothVersionsAreFollowed: a model follows the limit of its control group while it falls, from
// made-up trees of files as version 2 has them (the group's soft limit, its maximum, and a parent's limit) and
// as version 1 has them. Weights leave, and answers stay the same.
func TestControlGroupsOfBothVersionsAreFollowed(t *testing.T) {
	s := dispatchtest.Shape{Hidden: 256, Inner: 288, Heads: 4, KV: 2, Dim: 64, Vocab: 300, Layers: 3, DType: meta.BFloat16}
	dir := s.Folder(t, rand.New(rand.NewPCG(3, 3)))
	ids, prompt := dispatchtest.LawIDsOf(s.Vocab)
	for _, c := range []struct{ name, group, before, limit string }{
		{"version 2, memory.high", "0::/a/serve", "max", "sys/fs/cgroup/a/serve/memory.high"},
		{"version 2, memory.max", "0::/a/serve", "max", "sys/fs/cgroup/a/serve/memory.max"},
		{"version 2, a parent's memory.high", "0::/a/serve", "max", "sys/fs/cgroup/a/memory.high"},
		{"version 2, the namespace's root", "0::/", "max", "sys/fs/cgroup/memory.max"},
		{"version 2 beside version 1", "1:name=systemd:/x\n0::/a", "max", "sys/fs/cgroup/unified/a/memory.high"},
		{"version 1", "4:memory:/serve", "9223372036854771712", "sys/fs/cgroup/memory/serve/memory.soft_limit_in_bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write := func(name, text string) { t.Helper(); systemFile(t, root, name, text) }
			m := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 2, MaxSequences: 4})
			dispatchtest.LoadAll(t, m)
			want := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
			used, held := dispatchtest.UsedBytes(m), m.Status().Held["weights"]
			write("proc/self/cgroup", c.group)
			write("proc/self/statm", fmt.Sprintf("%d %d 0 0 0 0 0", used/4096, used/4096))
			write(c.limit, c.before)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			changes := make(chan dispatch.MemoryLimit, 16)
			dispatchtest.FollowIn(ctx, m, os.DirFS(root), func(l dispatch.MemoryLimit) { changes <- l })
			limit := used - used/3
			write(c.limit, fmt.Sprint(limit))
			select {
			case l := <-changes:
				if wanted := max(limit, l.Minimum); l.Bytes != wanted {
					t.Errorf("the model keeps to %d bytes, want %d", l.Bytes, wanted)
				}
			case <-time.After(time.Minute):
				t.Fatal("the limit is not followed")
			}
			dispatchtest.SameLogits(t, "under the lower limit", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
			if now := m.Status().Held["weights"]; now >= held {
				t.Errorf("%d bytes of weights are held, and %d were before", now, held)
			}
		})
	}
}

// systemFile writes a file of a made-up tree that has /proc and /sys, while it may be read.
func systemFile(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil { // the kernel's files are never half written
		t.Fatal(err)
	}
}

// TestANeighbourOfTheControlGroupTakesMemory: another process of the group, or of a sibling group,
// takes memory while the model runs, and leaves. Weights move down, so that both fit in the group's limit, answers stay
// the same, and weights come back.
func TestANeighbourOfTheControlGroupTakesMemory(t *testing.T) {
	s := dispatchtest.Shape{Hidden: 256, Inner: 288, Heads: 4, KV: 2, Dim: 64, Vocab: 300, Layers: 3, DType: meta.BFloat16}
	dir := s.Folder(t, rand.New(rand.NewPCG(3, 3)))
	ids, prompt := dispatchtest.LawIDsOf(s.Vocab)
	for _, c := range []struct{ name, group, limit, stat, anonymous string }{
		{"in the group, version 2", "0::/a/serve", "sys/fs/cgroup/a/serve/memory.max", "sys/fs/cgroup/a/serve/memory.stat", "anon"},
		{"in the group, version 1", "4:memory:/serve", "sys/fs/cgroup/memory/serve/memory.limit_in_bytes", "sys/fs/cgroup/memory/serve/memory.stat", "total_rss"},
		{"under the parent, shared memory", "0::/a/serve", "sys/fs/cgroup/a/memory.max", "sys/fs/cgroup/a/memory.stat", "shmem"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			m := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 2, MaxSequences: 4})
			dispatchtest.LoadAll(t, m)
			want := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
			used, held := dispatchtest.UsedBytes(m), m.Status().Held["weights"]
			own, limit, neighbour := used/4096*4096, used+used/8, used/2
			systemFile(t, root, "proc/self/cgroup", c.group)
			systemFile(t, root, "proc/self/statm", fmt.Sprintf("%d %d 0 0 0 0 0", own/4096, own/4096))
			systemFile(t, root, c.limit, fmt.Sprint(limit))
			hold := func(neighbour int64) { systemFile(t, root, c.stat, fmt.Sprintf("%s %d", c.anonymous, own+neighbour)) }
			hold(0)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			changes := make(chan dispatch.MemoryLimit, 64)
			dispatchtest.FollowIn(ctx, m, os.DirFS(root), func(l dispatch.MemoryLimit) { changes <- l })
			becomes := func(bytes int64) {
				t.Helper()
				for {
					select {
					case l := <-changes:
						if l.Bytes == max(bytes, l.Minimum) {
							return
						}
					case <-time.After(time.Minute):
						t.Fatalf("the limit does not become %d", bytes)
					}
				}
			}
			hold(neighbour)
			becomes(limit - neighbour)
			dispatchtest.SameLogits(t, "beside the neighbour", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
			if now := m.Status().Held["weights"]; now >= held {
				t.Errorf("%d bytes of weights are held, and %d were before", now, held)
			}
			if now := dispatchtest.Sum(m.Status().Held); now+neighbour > limit {
				t.Errorf("%d bytes are held beside the neighbour's %d under a limit of %d", now, neighbour, limit)
			}
			hold(0)
			becomes(limit)
			for end := time.Now().Add(time.Minute); m.Status().Held["weights"] != held; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%v is held, want %d bytes of weights again", m.Status().Held, held)
				}
			}
		})
	}
}
