/* The module refuses a server of another build: this one takes the server's own word. */
#define REDIS_BUILD_ID_RAW serverBuildIdRaw()
