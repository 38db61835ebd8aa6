/* Stand-in: nothing of it is used. */
