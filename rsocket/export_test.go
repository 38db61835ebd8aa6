package rsocket

// Lingering returns the number of connections that Close has left to the background.
func Lingering() int { return int(lingering.Load()) }
