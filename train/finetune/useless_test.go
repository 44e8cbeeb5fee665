package finetune

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDataWithoutTokensSaysWhy: files without records, without answers and with prompts longer than --sequence all were
// "--data has no tokens to learn".
func TestDataWithoutTokensSaysWhy(t *testing.T) {
	for want, records := range map[string]string{
		"data.jsonl has no records": "\n",
		"data.jsonl has only texts whose first 64 tokens have none to learn: use a higher --sequence": `{"prompt": "` + strings.Repeat("word ", 300) + `", "completion": "yes"}`,
		"--data-weights leave less than one record":                                                   `{"prompt": "are you there?", "completion": "yes"}`,
		"data.jsonl has no answers, or only empty ones: use --learn-prompt":                           `{"messages": [{"role": "user", "content": "hi"}]}`,
	} {
		file := filepath.Join(t.TempDir(), "data.jsonl")
		if err := os.WriteFile(file, []byte(records+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		o := Defaults()
		o.Output, o.Sequence = filepath.Join(t.TempDir(), "out"), 64
		if strings.Contains(want, "weights") {
			o.DataWeights = []float64{0.01}
		}
		_, err := Run(t.Context(), "../../testdata/golden/train/preference", []string{file}, o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
