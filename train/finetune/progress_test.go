package finetune

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// TestProgressSaysWhatItCounts: the line said tok/s of whatever a method's loss is a mean over.
func TestProgressSaysWhatItCounts(t *testing.T) {
	root := filepath.Join(golden.Module(t), "testdata", "golden", "train")
	text := filepath.Join(t.TempDir(), "text.jsonl")
	if err := os.WriteFile(text, []byte(`{"text": "the sun and the rain"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	pairs, groups := filepath.Join(root, "preference", "text.jsonl"), filepath.Join(root, "grpo", "text.jsonl")
	for _, c := range []struct{ method, loss, file, want string }{
		{"sft", "", text, " learned tok/s"}, {"dpo", "", pairs, " pairs/s"}, {"kto", "", pairs, " answers/s"}, {"reward", "", pairs, " pairs/s"},
		{"grpo", "", groups, " tok/s"}, {"grpo", "grpo", groups, " completions/s"},
	} {
		var line bytes.Buffer
		o := Defaults()
		o.Method, o.LossType, o.Output, o.Progress, o.MaxSteps, o.Batch, o.Sequence, o.Threads = c.method, c.loss, filepath.Join(t.TempDir(), "out"), &line, 1, 2, 64, 1
		if _, err := Run(t.Context(), filepath.Join(root, "preference"), []string{c.file}, o); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(line.String(), c.want) {
			t.Errorf("%s %s: got %q, want %q", c.method, c.loss, line.String(), c.want)
		}
	}
}
