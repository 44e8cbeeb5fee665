// The configuration of AMX tiles.

struct __attribute__((aligned(64))) tile_config {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16]; // of a row of each tile
  uint8_t rows[16];
};

// Eight tiles of 16 rows of 64 bytes.
#define WHOLE_TILES {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}}
