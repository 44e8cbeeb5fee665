package checkpoint

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The names of the files of a checkpoint. [Numbered] returns the names of those of a second
// model, optimizer and so on.
const (
	ModelFile     = "model.safetensors"
	OptimizerFile = "optimizer.safetensors"
	SchedulerFile = "scheduler.json"
	ScalerFile    = "scaler.json"
)

// Numbered returns the name of the i-th file of a kind: name itself for 0, and otherwise name
// with _i before its suffix.
func Numbered(name string, i int) string {
	if i == 0 {
		return name
	}
	stem, suffix, _ := strings.Cut(name, ".")
	return fmt.Sprintf("%s_%d.%s", stem, i, suffix)
}

// CustomFile returns the name of the file of the i-th registered object.
func CustomFile(i int) string { return fmt.Sprintf("custom_checkpoint_%d.json", i) }

// RankFile returns the name of the file of a rank's own state.
func RankFile(rank int) string { return fmt.Sprintf("random_states_%d.json", rank) }

// GradientsFile returns the name of the file of a rank's gradients in an unfinished accumulation
// window.
func GradientsFile(rank int) string { return fmt.Sprintf("gradients_%d.safetensors", rank) }

var firstNumber = regexp.MustCompile(`[0-9]+`)

// Number returns the first number in the name of a checkpoint directory, and whether there is
// one.
func Number(name string) (int, bool) {
	n, err := strconv.Atoi(firstNumber.FindString(name))
	return n, err == nil
}

// List returns the directories in dir with a number in their name, lowest first. It omits
// directories that are being written or removed.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	number := map[string]int{}
	var names []string
	for _, e := range entries {
		n, ok := Number(e.Name())
		if ok && e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			number[e.Name()] = n
			names = append(names, e.Name())
		}
	}
	slices.SortStableFunc(names, func(x, y string) int { return number[x] - number[y] })
	return names, nil
}
