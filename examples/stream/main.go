// Stream runs a model from the disk: no block's weights stay in memory, each is read just before it
// computes. The answer is the same, bit for bit, as with all weights in memory.
//
//	go run ./examples/stream
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/text"
)

// answer opens the model in folder as placed says and asks it one question.
func answer(ctx context.Context, to io.Writer, folder, placed string) error {
	policy, err := devicemap.ParsePolicy(placed)
	if err != nil {
		return err
	}
	model, err := dispatch.Open(folder, dispatch.Options{DeviceMap: policy, Context: 256})
	if err != nil {
		return err
	}
	defer model.Close()
	generator, err := generate.New(model, generate.Options{})
	if err != nil {
		return err
	}
	defer generator.Close()
	reply, err := generator.Reply(ctx, text.Conversation{Messages: []text.Message{text.User("What is Heft?")}},
		generate.TextOptions{Params: &generate.Params{}, MaxTokens: 16})
	if err != nil {
		return err
	}
	plan, status := model.Plan(), model.Status()
	fmt.Fprintf(to, "%-5s %q\n", placed, reply.Content)
	_, err = fmt.Fprintf(to, "      weights in memory: %s, on the disk: %s, read from it: %v\n",
		devicemap.FormatSize(plan.Device(devicemap.CPU).WeightsBytes), devicemap.FormatSize(plan.Device(devicemap.Disk).WeightsBytes),
		status.TierReadBytes > plan.DiskBytesPerToken)
	return err
}

func write(ctx context.Context, to io.Writer) error {
	folder, err := os.MkdirTemp("", "heft-stream-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := os.CopyFS(folder, demo.Files()); err != nil { // embedded files are no disk
		return err
	}
	for _, placed := range []string{"cpu", "disk"} {
		if err := answer(ctx, to, folder, placed); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: stream\nIt has no flags.") }
	flag.Parse()
	if err := write(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
