#line 1 "/holdfast/holdfast_glibc217.h" /* keeps the checkout's path out of the debug information */
/* Copyright The Holdfast Authors. */
/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Given to each C file of a cgo build ("-include", see base.json), so that the
 * binary starts on glibc 2.17 (CentOS 7) and newer, whatever glibc it is linked
 * against. glibc 2.34 moved the threads and dl functions into libc.so.6 under a
 * new symbol version; the old version is kept there for old binaries, and that
 * is the one asked for here. The old glibc has them in libraries of their own,
 * which the link therefore names (-l:libpthread.so.0 ... in base.json).
 *
 * A .symver line for a function that a file does not call has no effect.
 * Functions that are missing here are found by hack/tests/toolchain's
 * TestGlibcVersions: add them.
 */
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(__ASSEMBLER__)
#if defined(__x86_64__)
#define HOLDFAST_OLD "GLIBC_2.2.5"
#else
#define HOLDFAST_OLD "GLIBC_2.17"
#endif
#define HOLDFAST_SYMVER(name, old) __asm__(".symver " #name "," #old "@" HOLDFAST_OLD);

HOLDFAST_SYMVER(dlclose, dlclose)
HOLDFAST_SYMVER(dlerror, dlerror)
HOLDFAST_SYMVER(dlopen, dlopen)
HOLDFAST_SYMVER(dlsym, dlsym)
HOLDFAST_SYMVER(pthread_attr_getstack, pthread_attr_getstack)
HOLDFAST_SYMVER(pthread_attr_getstacksize, pthread_attr_getstacksize)
HOLDFAST_SYMVER(pthread_attr_setstacksize, pthread_attr_setstacksize)
HOLDFAST_SYMVER(pthread_create, pthread_create)
HOLDFAST_SYMVER(pthread_detach, pthread_detach)
HOLDFAST_SYMVER(pthread_getattr_np, pthread_getattr_np)
HOLDFAST_SYMVER(pthread_getspecific, pthread_getspecific)
HOLDFAST_SYMVER(pthread_key_create, pthread_key_create)
HOLDFAST_SYMVER(pthread_setspecific, pthread_setspecific)
HOLDFAST_SYMVER(pthread_sigmask, pthread_sigmask)
HOLDFAST_SYMVER(res_search, __res_search)

/*
 * The program's entry point (crt1.o) comes compiled and asks for the newest
 * __libc_start_main. The linker's --wrap sends it here instead. The newer
 * version differs in who runs constructors: with init == 0 an old glibc runs
 * none of the executable's own, so they are run here, and on a new glibc an
 * init that is not 0 tells it that they are.
 */
HOLDFAST_SYMVER(holdfast_libc_start_main, __libc_start_main)
extern int holdfast_libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
	void (*init)(int, char **, char **), void (*fini)(void), void (*rtld_fini)(void), void *stack_end);

extern void (*__preinit_array_start[])(int, char **, char **) __attribute__((visibility("hidden"), weak));
extern void (*__preinit_array_end[])(int, char **, char **) __attribute__((visibility("hidden"), weak));
extern void (*__init_array_start[])(int, char **, char **) __attribute__((visibility("hidden"), weak));
extern void (*__init_array_end[])(int, char **, char **) __attribute__((visibility("hidden"), weak));

__attribute__((weak, visibility("hidden"), noinline))
void holdfast_init(int argc, char **argv, char **envp)
{
	long i, n = __init_array_end - __init_array_start;
	for (i = 0; i < n; i++)
		__init_array_start[i](argc, argv, envp);
}

__attribute__((weak, visibility("hidden"), noinline))
int __wrap___libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
	void (*init)(int, char **, char **), void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
	(void)init;
	return holdfast_libc_start_main(main, argc, argv, holdfast_init, fini, rtld_fini, stack_end);
}
#endif
