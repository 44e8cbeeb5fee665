package residency

import (
	"testing"

	"github.com/heftai/heft/devicemap"
)

// TestAPageTooFewHalvedTheWindow: reads of whole blocks take a little more than the plan counts. The window of bands then
// fell to two bands, and the disk waited for passes of many tokens.
func TestAPageTooFewHalvedTheWindow(t *testing.T) {
	const band, block = 4 << 20, 4096
	n := streamed{unit: 3 * block, units: 90 * block, band: band, bands: 1 << 30}
	planned := Window(block) + devicemap.BandWindow(band, 1<<30, false)
	window, bands, _ := n.divide(planned)
	if window < n.unit || bands < devicemap.BandWindow(band, 1<<30, false)-band || window+bands > planned {
		t.Errorf("of %d bytes units get %d and bands %d", planned, window, bands)
	}
	if _, bands, _ := n.divide(0); bands != 2*band {
		t.Errorf("without room bands get %d bytes, want %d", bands, 2*band)
	}
}
