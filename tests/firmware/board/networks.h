/* Sizes of no network. */
#ifndef NETWORKS_H
#define NETWORKS_H
#define NETWORKS_ARENA_SIZE 1024
#define NETWORKS_TENSORS_SIZE 1024
#define NETWORKS_MOST_PORTS 4
#endif
