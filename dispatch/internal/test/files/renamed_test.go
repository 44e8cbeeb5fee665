package files_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/testenv"
)

// TestAnEqualShardMayTakeTheName: a shard that is written again with the same bytes, before a pass has used it, ended
// service.
func TestAnEqualShardMayTakeTheName(t *testing.T) {
	if watch, err := hostmem.WatchWrites(t.TempDir()); err != nil {
		testenv.Need(t, "inotify", false, "inotify")
	} else {
		watch.Close()
	}
	for _, text := range []string{"cpu", "disk"} {
		dir := dispatchtest.DemoFolder(t)
		shard := filepath.Join(dir, "model.safetensors")
		policy, _ := devicemap.ParsePolicy(text)
		whole, err := os.ReadFile(shard)
		if err != nil {
			t.Fatal(err)
		}
		first, err := dispatch.Open(dir, dispatch.Options{DeviceMap: policy})
		if err != nil {
			t.Fatal(err)
		}
		want := dispatchtest.Generate(t, first, []int32{1, 2}, dispatch.GenerateOptions{MaxTokens: 3})
		first.Close()
		m, err := dispatch.Open(dir, dispatch.Options{DeviceMap: policy})
		if err != nil {
			t.Fatal(err)
		}
		takeName(t, shard, whole)
		if got := dispatchtest.Generate(t, m, []int32{1, 2}, dispatch.GenerateOptions{MaxTokens: 3}); !slices.Equal(got, want) {
			t.Errorf("%s: after an equal file took the name: %v, want %v", text, got, want)
		}
		m.Close()
	}
}

// takeName renames a file with other contents, or the same, to a path.
func takeName(t *testing.T, path string, contents []byte) {
	t.Helper()
	err := os.WriteFile(path+".new", contents, 0o666)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}
