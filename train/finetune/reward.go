package finetune

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// RewardFunc rewards completions of a prompt. It must return one number for each completion. NaN
// means that a completion does not count.
type RewardFunc func(ctx context.Context, prompt RewardPrompt, completions []string) ([]float64, error)

// RewardPrompt is the prompt of the completions to reward.
type RewardPrompt struct {
	// Text is the prompt as the model reads it, special tokens included.
	Text string
	// Record is the prompt's record in the data, with keys that a reward may depend on.
	Record json.RawMessage
}

// checkRewarded returns an error for unusable rewards.
func checkRewarded(rewards []float64, completions int) error {
	if len(rewards) != completions {
		return fmt.Errorf("finetune: reward: got %d rewards of %d completions, want one for each", len(rewards), completions)
	}
	for i, r := range rewards {
		if math.IsInf(r, 0) {
			return fmt.Errorf("finetune: reward: got %v for completion %d of %d, want a finite number, or NaN for none", r, i+1, completions)
		}
	}
	return nil
}

// rewardProgram is a running --reward-command.
type rewardProgram struct {
	name    string
	timeout time.Duration
	cmd     *exec.Cmd
	in      io.WriteCloser
	lines   chan string // of its output; closed at the output's end
	ended   error       // the error of the output, once lines is closed
	quit    chan struct{}
	once    sync.Once
}

// longestReward is the maximum number of bytes of a line with a reward.
const longestReward = 256

// startReward starts a program. Spaces separate its arguments. No shell is involved.
func startReward(command string, timeout time.Duration, log *slog.Logger) (*rewardProgram, error) {
	args := strings.Fields(command)
	if len(args) == 0 {
		return nil, misusef("--reward-command: got no program")
	}
	p := &rewardProgram{name: args[0], timeout: timeout, cmd: exec.Command(args[0], args[1:]...), lines: make(chan string), quit: make(chan struct{})}
	p.cmd.WaitDelay = time.Second
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stderr = &logged{log: log}
	if err := p.cmd.Start(); err != nil {
		return nil, misusef("--reward-command: %w", err)
	}
	go p.read(out)
	return p, nil
}

// read passes lines on until the output ends or a line is too long.
func (p *rewardProgram) read(out io.Reader) {
	defer close(p.lines)
	in := bufio.NewScanner(out)
	in.Buffer(make([]byte, longestReward), longestReward)
	for in.Scan() {
		select {
		case p.lines <- in.Text():
		case <-p.quit:
			return
		}
	}
	if p.ended = in.Err(); errors.Is(p.ended, bufio.ErrTooLong) {
		p.ended = fmt.Errorf("got a line of more than %d bytes, want a number", longestReward)
	}
}

// reward writes a line for each completion and reads a number for each.
func (p *rewardProgram) reward(ctx context.Context, prompt RewardPrompt, completions []string) ([]float64, error) {
	var lines bytes.Buffer
	to := json.NewEncoder(&lines)
	to.SetEscapeHTML(false)
	for _, c := range completions {
		if err := to.Encode(map[string]any{"prompt": prompt.Text, "completion": c, "record": prompt.Record}); err != nil {
			return nil, err
		}
	}
	written := make(chan error, 1)
	go func() {
		_, err := p.in.Write(lines.Bytes())
		written <- err
	}()
	var rewards []float64
	for len(rewards) < len(completions) {
		r, err := p.next(ctx)
		if err != nil {
			return nil, fmt.Errorf("--reward-command %s: completion %d of %d: %w", p.name, len(rewards)+1, len(completions), err)
		}
		rewards = append(rewards, r)
	}
	select {
	case err := <-written:
		if err != nil {
			return nil, fmt.Errorf("--reward-command %s: %w", p.name, err)
		}
	case <-time.After(p.timeout):
		return nil, fmt.Errorf("--reward-command %s: got %d numbers before it read its input, want one for each line", p.name, len(completions))
	}
	return rewards, nil
}

// next reads one number.
func (p *rewardProgram) next(ctx context.Context) (float64, error) {
	late := time.NewTimer(p.timeout)
	defer late.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok && p.ended != nil {
			return 0, p.ended
		}
		if !ok {
			return 0, errors.New("the program has ended, want a line with a number for each line of its input")
		}
		if line = strings.TrimSpace(line); line == "null" {
			return math.NaN(), nil
		}
		r, err := strconv.ParseFloat(line, 64)
		if err != nil {
			return 0, fmt.Errorf("got the line %q, want a number, or null for none", line)
		}
		return r, nil
	case <-late.C:
		return 0, fmt.Errorf("got no number in %v: flush the output after each line, or use a higher --reward-timeout", p.timeout)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// close ends the program by closing its input, and after a second by killing it.
func (p *rewardProgram) close() error {
	p.once.Do(func() {
		close(p.quit)
		p.in.Close()
		killed := time.AfterFunc(time.Second, func() { _ = p.cmd.Process.Kill() })
		_ = p.cmd.Wait() // its exit status is irrelevant to the run
		killed.Stop()
	})
	return nil
}

// logged is a writer that logs a program's standard error line by line, up to a limit.
type logged struct {
	log  *slog.Logger
	rest []byte
	seen int
}

// loggedLines is the maximum number of logged lines of a program.
const loggedLines = 100

func (l *logged) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 && l.seen < loggedLines {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		l.rest = append(l.rest, line[:min(len(line), 1000)]...)
		if !whole && len(l.rest) < 1000 {
			break
		}
		l.log.Warn("reward command", "says", string(l.rest))
		l.rest, b = l.rest[:0], rest
		l.seen++
	}
	return n, nil
}
