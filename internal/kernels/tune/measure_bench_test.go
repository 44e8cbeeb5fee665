package tune

import (
	"context"
	"fmt"
	"testing"

	"github.com/heftai/heft/internal/kernels/fetch"
)

// BenchmarkMeasure measures the cost at a first start.
func BenchmarkMeasure(b *testing.B) {
	defer fetch.Use(fetch.Current())
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprint(threads), func(b *testing.B) {
			for b.Loop() {
				r, err := Measure(context.Background(), Options{Threads: threads, Usual: fetch.Default("")})
				if err != nil {
					b.Fatal(err)
				}
				if testing.Verbose() {
					for role, rates := range r.Rates {
						fmt.Print(role, ": ")
						for _, x := range rates {
							fmt.Printf("%v %.1f; ", x.Pattern, x.BytesPerSecond/1e9)
						}
						fmt.Println()
					}
				}
			}
		})
	}
}
