package finetune

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
)

// cardMark marks the model cards written by train run. Later runs may replace them.
const cardMark = "<!-- train run writes this file; remove this line to keep your changes -->"

// hubName matches the name of a model on a hub: ORG/NAME, with an optional revision.
var hubName = regexp.MustCompile(`^([\w.-]+/[\w.-]+)(@[\w./-]+)?$`)

// writeCard writes the model card README.md into the output folder, unless a card exists that train
// run has not written. Only the main process may call it.
func (j *job) writeCard() error {
	path := filepath.Join(j.Output, "README.md")
	switch old, err := os.ReadFile(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !strings.Contains(string(old), cardMark):
		return nil
	}
	return atomicfile.WriteFile(path, []byte(j.card()))
}

// card returns the text of the model card: metadata for a hub, and how the model was trained.
func (j *job) card() string {
	var b strings.Builder
	base, library := filepath.Base(j.model), "transformers"
	if j.LoRA != "" && !j.Merge {
		library = "peft"
	}
	b.WriteString("---\n")
	if m := hubName.FindStringSubmatch(j.BaseModel); m != nil && !exists(j.BaseModel) {
		base = m[1]
		fmt.Fprintf(&b, "base_model: %s\n", base)
	}
	fmt.Fprintf(&b, "library_name: %s\npipeline_tag: text-generation\ntags:\n- generated_from_trainer\n- %s\n", library, j.Method)
	if j.LoRA != "" {
		b.WriteString("- lora\n")
	}
	fmt.Fprintf(&b, "---\n%s\n\n# %s\n\nThis model was trained from %s by `train run`.\n", cardMark, filepath.Base(j.Output), base)
	b.WriteString("\n## Training\n\n| setting | value |\n|---|---|\n")
	for _, row := range j.cardSettings() {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], strings.ReplaceAll(row[1], "|", `\|`))
	}
	fmt.Fprintf(&b, "\n## Results\n\n| metric | value |\n|---|---|\n| steps | %d |\n", j.result.Steps)
	if j.result.Loss != nil {
		fmt.Fprintf(&b, "| train_loss | %.6g |\n", *j.result.Loss)
	}
	for _, name := range slices.Sorted(maps.Keys(j.result.Metrics)) {
		if !strings.Contains(name, "runtime") && !strings.Contains(name, "per_second") {
			fmt.Fprintf(&b, "| %s | %.6g |\n", name, j.result.Metrics[name])
		}
	}
	return b.String()
}

// cardSettings returns the settings of the run with their names. It omits paths of this machine.
func (j *job) cardSettings() [][2]string {
	var files []string
	for _, path := range j.files {
		files = append(files, filepath.Base(path))
	}
	rows := [][2]string{{"data", strings.Join(files, ", ")}, {"sequences", fmt.Sprint(j.data.samples)}, {"method", j.Method}}
	if j.LoRA != "" && !strings.HasPrefix(j.LoRA, adapterFrom) {
		rows = append(rows, [2]string{"LoRA", j.LoRA})
	}
	if j.Quantize != "" {
		rows = append(rows, [2]string{"quantized base", j.Quantize})
	}
	rows = append(rows, [][2]string{
		{"learning rate", fmt.Sprint(j.rate())}, {"schedule", j.LRScheduler}, {"optimizer", j.Optimizer},
		{"batch", fmt.Sprintf("%d × %d ranks × %d accumulated", j.Batch, j.ranks, j.GradientAccumulationSteps)},
		{"sequence", fmt.Sprint(j.Sequence)}, {"weight decay", fmt.Sprint(j.WeightDecay)}, {"precision", j.MixedPrecision}, {"seed", fmt.Sprint(j.Seed)},
	}...)
	if j.MaxSteps > 0 {
		return append(rows, [2]string{"steps", fmt.Sprint(j.MaxSteps)})
	}
	return append(rows, [2]string{"epochs", fmt.Sprint(j.Epochs)})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
